-- What the scripts of a queue share. Put before each of them.

local STREAMS = { cpu = KEYS[7], timing = KEYS[8] }
local QUEUE = ARGV[1]
local PARKED = 'parked'
local BATCH = 100

-- The server's time (CL-12): for all of a script the same.
local now
local function now_ms()
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return now
end

-- While all agents are busy nobody has to be woken: a hint notes that it was given, and a lease that finds nothing takes
-- the note away. What is given back is always told.
local function told(class)
  return 'told.' .. class
end

-- A note that entries may be parked: a lease need not look for them otherwise.
local function has_parked(class)
  return 'parked.' .. class
end

local function wake(class)
  redis.call('PUBLISH', 'ft:wake:' .. class, QUEUE)
end

local function agent_of(consumer)
  return string.match(consumer, '^([^/]*)')
end

-- Calls what needs the group; nil if the group or its stream is not there.
local function group_call(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    if string.find(reply.err, 'NOGROUP', 1, true) then return nil end
    error(reply)
  end
  return reply
end

local function make_group(stream)
  local reply = redis.pcall('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
  if reply.err and not string.find(reply.err, 'BUSYGROUP', 1, true) then error(reply) end
end

-- The oldest entries that a consumer has, in a table of entry, consumer, idle ms and number each. Nil if there is no group.
local function held_by(class, consumer, count)
  return group_call('XPENDING', STREAMS[class], GROUP, '-', '+', count, consumer)
end

-- Who has an entry, with which number, and for how long without a sign. Nil if nobody; then whether a group is there.
local function holder(class, entry)
  local pending = group_call('XPENDING', STREAMS[class], GROUP, entry, entry, 1)
  if not pending then return nil, false end
  if #pending == 0 then return nil, true end
  return pending[1][2], pending[1][4], pending[1][3]
end

-- Neither XACK nor a consumer's name proves ownership: both are compared (CL-15).
local function owns(class, entry, number, consumer)
  local who, delivered = holder(class, entry)
  return who == consumer and delivered == tonumber(number)
end

-- The task that an entry names; nil if the entry was deleted. Read before XCLAIM, which drops such ones (CL-19).
local function task_of(class, entry)
  local found = redis.call('XRANGE', STREAMS[class], entry, entry)
  return found[1] and found[1][2][2]
end

local function drop(class, entry)
  redis.call('XACK', STREAMS[class], GROUP, entry)
  redis.call('XDEL', STREAMS[class], entry)
end

-- The hash holds two fields for each task: its record by its id, and its id by its entry, which is all that is left of
-- an entry that was deleted.
local function field_of(class, entry)
  return class .. ':' .. entry
end

-- A record as it was saved; what another program wrote there is none.
local function unpacked(packed)
  local read, record = pcall(cmsgpack.unpack, packed)
  return read and type(record) == 'table' and record.envelope and record
end

local function load(task)
  local packed = redis.call('HGET', TASK, task)
  return packed and unpacked(packed)
end

local function save(task, record)
  redis.call('HSET', TASK, task, cmsgpack.pack(record), field_of(record.class, record.entry), task)
end

local function refused(record, name, nonce)
  local refusal = record.refusals[name]
  return refusal and refusal.nonce == nonce
end

local function leased(of)
  local summary = group_call('XPENDING', of, GROUP)
  if not summary or summary[1] == 0 then return 0 end
  local count = summary[1]
  for _, each in ipairs(summary[4]) do
    if each[1] == PARKED then count = count - each[2] end
  end
  return count
end

-- Whether as many are leased as may be; 0 is no bound.
local function has_most(max_inflight)
  local most = tonumber(max_inflight)
  return most > 0 and leased(STREAMS.cpu) + leased(STREAMS.timing) >= most
end

-- The oldest parked entry that this life of the agent did not refuse: entry, number, task, record.
local function next_parked(class, name, nonce)
  local waiting = held_by(class, PARKED, 16)
  if not waiting[1] then redis.call('HDEL', META, has_parked(class)) end
  for _, pending in ipairs(waiting) do
    local entry = pending[1]
    local task = task_of(class, entry)
    local record = task and load(task)
    if not record or not refused(record, name, nonce) then return entry, pending[4], task, record end
  end
end

-- Stores the one result of a task, and forgets the task. The agent's own events of it stand in ARGV from `events` on.
local function finish(task, record, result, agent, complete, events)
  drop(record.class, record.entry)
  for i = events or #ARGV + 1, #ARGV, 4 do event(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]) end
  redis.call('HDEL', TASK, task, field_of(record.class, record.entry))
  redis.call('SREM', CANCEL, task)
  redis.call('HSET', RES, task, result)
  event('complete', task, agent, complete)
end

-- Records what dispatch itself has to say of a task, by the text that its coordinator left for it.
local function record_verdict(task, record, verdict, reason, now)
  local text = redis.call('HGET', META, 'verdict.' .. verdict) or ''
  local waited = string.format('%.3f', math.max(0, now - record.since) / 1000)
  text = string.gsub(text, '"%%REASON%%"', function() return cjson.encode(reason) end)
  text = string.gsub(text, '"%%WAITED_S%%"', function() return waited end)
  finish(task, record, text, nil, '{"recorded":"' .. verdict .. '"}')
end

local function has_waited_too_long(record, now)
  return record.timeout >= 0 and now - record.since > record.timeout
end

-- EX-46
local function record_queue_timeout(task, record, now)
  local waited = string.format('%.0f', now - record.since)
  record_verdict(task, record, 'queue_timeout', 'waited ' .. waited .. ' ms for a slot', now)
end

-- Delivered too often: a dead letter, and the result `lost` (CL-29).
local function bury(task, record, consumer, deliveries, now)
  local reason = record.error or 'its lease expired'
  redis.call('XADD', DEAD, 'MAXLEN', '~', 1000, '*',
    'task', task, 'deliveries', deliveries, 'agent', consumer, 'reason', reason)
  event('call.dead', task, agent_of(consumer), cjson.encode({ deliveries = deliveries, reason = reason }))
  record_verdict(task, record, 'lost',
    'handed out ' .. deliveries .. ' times, last to `' .. consumer .. '`: ' .. reason, now)
end

local function is_cancelled(task)
  return redis.call('HGET', META, 'state') == 'cancelled' or redis.call('SISMEMBER', CANCEL, task) == 1
end

-- Adds an open task to the end of its stream again, unless it was cancelled.
local function add_anew(task, record)
  if is_cancelled(task) then
    record_verdict(task, record, 'cancelled', 'cancelled while it ran', now_ms())
    return
  end
  drop(record.class, record.entry)
  redis.call('HDEL', TASK, field_of(record.class, record.entry))
  record.entry = redis.call('XADD', STREAMS[record.class], '*', 'task', task)
  save(task, record)
  event('call.requeued', task, nil, '{"reason":"its entry was deleted"}')
  wake(record.class)
end

-- Acknowledges an entry that was deleted; its task, if open, is added anew. Whether it was.
local function restore(class, entry)
  local task = redis.call('HGET', TASK, field_of(class, entry))
  local record = task and load(task)
  drop(class, entry)
  if not record or record.entry ~= entry then return false end
  add_anew(task, record)
  return true
end

-- Gives an entry to the next lease. One that was cancelled meanwhile is recorded so instead: false.
local function park(task, record, number, name, agent, reason, now)
  if is_cancelled(task) then
    record_verdict(task, record, 'cancelled', 'cancelled while it ran', now)
    return false
  end
  redis.call('XCLAIM', STREAMS[record.class], GROUP, PARKED, 0, record.entry, 'RETRYCOUNT', number, 'JUSTID')
  redis.call('HSET', META, has_parked(record.class), 1)
  if name == 'call.requeued' then record.since = now end
  save(task, record)
  event(name, task, agent, cjson.encode({ reason = reason, delivery = number }))
  wake(record.class)
  return true
end

-- What a keyless list of names and values says of one name.
local function value_of(list, name)
  for i = 1, #list, 2 do
    if list[i] == name then return list[i + 1] end
  end
end
