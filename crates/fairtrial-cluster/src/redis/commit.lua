-- ARGV: class, task, entry, delivery number, consumer, result, what `complete` says, then events: name, task, agent, data.
local class, task, entry, number, consumer, result = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local stored = redis.call('HGET', RES, task)
if stored then
  if owns(class, entry, number, consumer) then drop(class, entry) end
  return { 'duplicate', stored }
end
if redis.call('HEXISTS', TASK, task) == 0 then return { 'unknown' } end
if not owns(class, entry, number, consumer) or redis.call('HGET', TASK, field_of(class, entry)) ~= task then
  return { 'fenced' }
end
drop(class, entry)
for i = 9, #ARGV, 4 do event(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]) end
finish(task, { class = class, entry = entry }, result, agent_of(consumer), ARGV[8])
return { 'committed' }
