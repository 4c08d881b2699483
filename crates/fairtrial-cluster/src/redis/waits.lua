-- ARGV: class, consumer, agent's name, its nonce. Whether a lease would find something. Leases nothing.
local class, consumer, name, nonce = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local stream = STREAMS[class]
local meta = redis.call('HMGET', META, 'state', 'max_inflight', has_parked(class))
local held = meta[1] and held_by(class, consumer, 1)
if not held then return 0 end
if held[1] then return 1 end

local function finds()
  if meta[1] ~= 'open' or has_most(meta[2]) then return false end
  if meta[3] and next_parked(class, name, nonce) then return true end
  local last = value_of(redis.call('XINFO', 'GROUPS', stream)[1], 'last-delivered-id')
  return #redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', 1) > 0
end

if finds() then return 1 end
redis.call('HDEL', META, told(class)) -- whoever finds nothing waits for the next hint
return 0
