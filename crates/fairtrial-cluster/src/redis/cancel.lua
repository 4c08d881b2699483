-- ARGV: task.
local task = ARGV[2]
if redis.call('HEXISTS', RES, task) == 1 then return 'done' end
local record = load(task)
if not record then return 'unknown' end
local consumer = holder(record.class, record.entry)
if consumer and consumer ~= PARKED then
  redis.call('SADD', CANCEL, task)
  redis.call('PUBLISH', 'ft:ctl:' .. agent_of(consumer), QUEUE .. ' ' .. task)
  return 'signalled'
end
record_verdict(task, record, 'cancelled', 'cancelled before it started', now_ms())
return 'removed'
