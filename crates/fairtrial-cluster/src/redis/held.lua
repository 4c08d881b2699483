-- ARGV: `task` or `res`, a cursor. Answers the next cursor, then envelopes of tasks or results. What is no record is told
-- as it is: whoever cannot read it knows that something may be named there (CL-53).
local what, cursor = ARGV[2], ARGV[3]
local page = redis.call('HSCAN', what == 'task' and TASK or RES, cursor, 'COUNT', BATCH)
local answer = { page[1] }
for i = 1, #page[2], 2 do
  local field, value = page[2][i], page[2][i + 1]
  if what == 'res' then
    answer[#answer + 1] = value
  elseif not string.find(field, ':', 1, true) then -- by its id, and not by its entry
    local record = unpacked(value)
    answer[#answer + 1] = record and record.envelope or value
  end
end
return answer
