-- ARGV: owner, ms after which an owner is dead, then fields and values of the terms.
local owner, dead_after = ARGV[2], tonumber(ARGV[3])
local now = now_ms()
local had = redis.call('HMGET', META, 'owner', 'seen')
if had[1] and had[1] ~= '' and had[1] ~= owner and now - had[2] < dead_after then
  return { 'owned', had[1] }
end
make_group(STREAMS.cpu)
make_group(STREAMS.timing)
redis.call('HSET', META, 'owner', owner, 'seen', now, 'state', 'open', unpack(ARGV, 4))
event('queue.opened')
local id = tell()
local expiry = redis.call('HGET', META, 'expiry')
for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, expiry) end
return { 'opened', id }
