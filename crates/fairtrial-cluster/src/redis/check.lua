-- ARGV: tasks. Answers where each is.
local places = {}
for i = 2, #ARGV do
  local task = ARGV[i]
  local record = load(task)
  local place = 'missing'
  if redis.call('HEXISTS', RES, task) == 1 then
    place = 'done'
  elseif record then
    local consumer, group = holder(record.class, record.entry)
    if consumer and consumer ~= PARKED then
      place = 'leased'
    elseif (consumer or group) and task_of(record.class, record.entry) then
      place = 'queued'
    end
  end
  places[#places + 1] = place
end
return places
