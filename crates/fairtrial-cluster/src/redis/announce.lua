-- KEYS: the node's, the set of names. ARGV: name, nonce, description, ms until it is lost.
local had = redis.call('GET', KEYS[1])
if had and cjson.decode(had).nonce ~= ARGV[2] then return 'taken' end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
redis.call('SADD', KEYS[2], ARGV[1])
return 'ok'
