-- ARGV: owner, ms after which an owner is dead.
local owner, dead_after = ARGV[2], tonumber(ARGV[3])
local now = now_ms()
local had = redis.call('HMGET', META, 'owner', 'seen', 'expiry', 'weight')
if not had[2] then return { 'gone' } end
if had[1] ~= '' and had[1] ~= owner and now - had[2] < dead_after then
  return { 'owned', had[1] }
end
redis.call('HSET', META, 'owner', owner, 'seen', now)
for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, had[3]) end
return { 'ok', had[4] }
