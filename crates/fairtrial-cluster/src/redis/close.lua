-- ARGV: owner, ms after which an owner is dead.
local owner, dead_after = ARGV[2], tonumber(ARGV[3])
local had = redis.call('HMGET', META, 'owner', 'seen', 'named')
if not had[2] then return { 'gone' } end
if had[1] ~= '' and had[1] ~= owner and now_ms() - had[2] < dead_after then
  return { 'owned', had[1] }
end
if had[3] == '1' then
  redis.call('HSET', META, 'owner', '', 'state', 'closed')
  event('queue.closed')
  return { 'ok' }
end
redis.call('DEL', unpack(KEYS))
return { 'deleted' }
