-- The plain case of `commit`, which is nearly every call's: the slot has this entry and no other, the next task is of the
-- same queue and class, nothing is parked, paused, bounded or timed. It does as `commit.lua` does, in two thirds of the
-- server's time: what other cases need is not even made. Answers nothing, and has done nothing, if the case is not plain.
local function commit_plainly()
  local class, task, entry, number, consumer = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
  if ARGV[9] ~= class then return nil end
  local meta = redis.call('HMGET', META, 'state', 'max_inflight', 'timed', 'parked.' .. class, 'lease', 'told.' .. class)
  if meta[1] ~= 'open' or meta[2] ~= '0' or meta[3] or meta[4] then return nil end
  local stream = class == 'cpu' and KEYS[7] or KEYS[8]
  local held = redis.pcall('XPENDING', stream, GROUP, '-', '+', '2', consumer)
  local own = held[1]
  if not own or held[2] or own[1] ~= entry or own[4] ~= number then return nil end
  local note = class .. ':' .. entry
  if redis.call('HGET', TASK, note) ~= task then return nil end

  redis.call('XACK', stream, GROUP, entry)
  redis.call('XDEL', stream, entry)
  redis.call('HDEL', TASK, task, note)
  redis.call('SREM', CANCEL, task)
  redis.call('HSET', RES, task, ARGV[7])
  local name = string.match(consumer, '^[^/]*')
  for i = 11, #ARGV, 4 do event(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]) end
  event('complete', task, name, ARGV[8])

  for _ = 1, 100 do
    local read = redis.call('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', '1', 'STREAMS', stream, '>')
    if not read then break end
    local new = read[1][2][1]
    local next_task = new[2][2]
    local packed = redis.call('HGET', TASK, next_task)
    local is_read, record = pcall(cmsgpack.unpack, packed or '')
    if is_read and type(record) == 'table' and record.envelope and record.entry == new[1] then
      event('call.leased', next_task, name, '{"delivery":1}')
      -- By the server's clock, as all of them.
      local waited = math.max(0, string.match(tell(), '^%d+') - (tonumber(record.since) or 0))
      return { { 'committed' }, { 'task', next_task, new[1], 1, record.envelope, meta[5], waited } }
    end
    redis.call('XACK', stream, GROUP, new[1])
    redis.call('XDEL', stream, new[1])
  end
  if meta[6] then redis.call('HDEL', META, 'told.' .. class) end
  tell()
  return { { 'committed' }, { 'empty' } }
end

local plainly = commit_plainly()
if plainly then return plainly end

