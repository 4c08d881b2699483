-- KEYS: the node's, the set of names. ARGV: name, nonce.
local had = redis.call('GET', KEYS[1])
if had and cjson.decode(had).nonce ~= ARGV[2] then return 'taken' end
redis.call('DEL', KEYS[1])
redis.call('SREM', KEYS[2], ARGV[1])
return 'ok'
