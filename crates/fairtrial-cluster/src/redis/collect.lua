-- ARGV: how many tasks are asked for, these, then those that are kept.
local asked = tonumber(ARGV[2])
local results = {}
for i = 3, 2 + asked do results[#results + 1] = redis.call('HGET', RES, ARGV[i]) end
for i = 3 + asked, #ARGV do redis.call('HDEL', RES, ARGV[i]) end
return results
