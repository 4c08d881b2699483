-- ARGV: tasks. Records those that have waited too long. Answers for each after how many ms to ask again, -1 for never.
local now = now_ms()
local answers = {}
for i = 2, #ARGV do
  local task = ARGV[i]
  local record = load(task)
  local again = -1
  if record and record.timeout >= 0 then
    local who = holder(record.class, record.entry)
    local is_leased = who and who ~= PARKED
    if is_leased then
      again = record.timeout
    elseif has_waited_too_long(record, now) then
      record_queue_timeout(task, record, now)
    else
      again = record.timeout - (now - record.since)
    end
  end
  answers[#answers + 1] = again
end
return answers
