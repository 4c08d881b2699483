-- ARGV: task, class, queue timeout in ms (-1: none), envelope.
local task, class, timeout, envelope = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local meta = redis.call('HMGET', META, 'state', 'max_queue', told(class))
if meta[1] ~= 'open' and meta[1] ~= 'paused' then return 'closed' end
if redis.call('HEXISTS', RES, task) == 1 then return 'done' end
local known = load(task)
if known then
  make_group(STREAMS[known.class])
  local who = holder(known.class, known.entry)
  local leased = who and who ~= PARKED
  if not leased and not task_of(known.class, known.entry) then add_anew(task, known) end
  return 'dup'
end
if redis.call('HLEN', TASK) / 2 + redis.call('HLEN', RES) >= tonumber(meta[2]) then return 'full' end
local entry = redis.call('XADD', STREAMS[class], '*', 'task', task)
save(task, { class = class, entry = entry, timeout = timeout, since = now_ms(), refusals = {}, envelope = envelope })
event('submit', task)
if not meta[3] then
  redis.call('HSET', META, told(class), 1)
  wake(class)
end
return 'ok'
