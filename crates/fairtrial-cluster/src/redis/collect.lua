-- ARGV: how many tasks are asked for, these, then those that are kept.
local asked = tonumber(ARGV[2])
local results = asked > 0 and redis.call('HMGET', RES, unpack(ARGV, 3, 2 + asked)) or {}
if #ARGV > 2 + asked then
  local dropped = redis.call('HDEL', RES, unpack(ARGV, 3 + asked))
  if dropped > 0 then redis.call('HINCRBY', META, 'collected', dropped) end
end
return results
