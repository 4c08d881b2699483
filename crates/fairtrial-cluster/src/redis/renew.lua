-- ARGV: class, task, entry, delivery number, consumer.
local class, task, entry, number, consumer = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if not owns(class, entry, number, consumer) then return 'lost' end
-- XCLAIM would drop an entry that was deleted; that one is left for reap.
if task_of(class, entry) then
  redis.call('XCLAIM', STREAMS[class], GROUP, consumer, 0, entry, 'JUSTID')
end
if is_cancelled(task) then return 'cancel' end
return 'ok'
