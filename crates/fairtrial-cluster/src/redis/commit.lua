-- ARGV: class, task, entry, delivery number, consumer, result, what `complete` says, then events: name, task, agent, data.
local class, task, entry, number, consumer, result = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local stored = redis.call('HGET', RES, task)
if stored then
  if owns(class, entry, number, consumer) then drop(class, entry) end
  return { 'duplicate', stored }
end
-- The note of an entry is there as long as its task is.
if redis.call('HGET', TASK, field_of(class, entry)) ~= task then
  return { redis.call('HEXISTS', TASK, task) == 0 and 'unknown' or 'fenced' }
end
if not owns(class, entry, number, consumer) then return { 'fenced' } end
finish(task, { class = class, entry = entry }, result, agent_of(consumer), ARGV[8], 9)
return { 'committed' }
