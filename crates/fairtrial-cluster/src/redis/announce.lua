-- KEYS: the node's, the set of names. ARGV: name, nonce, description, ms until it is lost.
local had = redis.call('GET', KEYS[1])
if had and cjson.decode(had).nonce ~= ARGV[2] then return 'taken' end
-- With the time of this sign, for those who ask: what is left of a key's life is not everybody's to know.
local time = redis.call('TIME')
local seen = string.format('{"seen_ms":%.0f,', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('SET', KEYS[1], seen .. string.sub(ARGV[3], 2), 'PX', ARGV[4])
redis.call('SADD', KEYS[2], ARGV[1])
return 'ok'
