-- ARGV: the state, `paused` or `open`.
local state = redis.call('HGET', META, 'state')
if state ~= 'open' and state ~= 'paused' then return 0 end
if state ~= ARGV[2] then
  redis.call('HSET', META, 'state', ARGV[2])
  event(ARGV[2] == 'paused' and 'queue.paused' or 'queue.opened')
end
return 1
