-- ARGV: words that stay with the queue as long as it is there.
if redis.call('HEXISTS', META, 'state') == 0 then return 0 end
for i = 2, #ARGV do redis.call('HSET', META, 'pin.' .. ARGV[i], 1) end
return 1
