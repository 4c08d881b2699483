-- KEYS: the node's, the set of names. ARGV: name.
if redis.call('GET', KEYS[1]) then return 0 end
return redis.call('SREM', KEYS[2], ARGV[1])
