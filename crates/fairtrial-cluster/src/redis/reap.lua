-- ARGV: class, from which entry on, then the live agents of the class: name, nonce.
-- Answers counts (parked, dead, anew, refused, cancelled, stale) and the last entry of a full page.
local class, from = ARGV[2], ARGV[3]
local stream = STREAMS[class]
local now = now_ms()
local meta = redis.call('HMGET', META, 'seen', 'expiry', 'lease', 'max_deliver')
if not meta[1] or now - meta[1] > meta[2] * 1000 then
  redis.call('DEL', unpack(KEYS))
  return { 'gone' }
end
local lease, max_deliver = tonumber(meta[3]), tonumber(meta[4])

-- Whether all live agents have refused; none alive is nobody who refused (CL-38).
local function refused_by_all(record)
  for i = 4, #ARGV, 2 do
    if not refused(record, ARGV[i], ARGV[i + 1]) then return false end
  end
  return #ARGV >= 4
end

-- CL-22 and CL-23: the result of what nobody here can run, with every reason.
local function record_refusals(task, record)
  local reasons, verdict = {}, 'invalid'
  for name, refusal in pairs(record.refusals) do
    reasons[#reasons + 1] = name .. ': ' .. refusal.reason
    if refusal.kind == 'setup' then verdict = 'setup_failed' end
  end
  table.sort(reasons)
  record_verdict(task, record, verdict, table.concat(reasons, '; '), now)
end

local counts = { parked = 0, dead = 0, anew = 0, refused = 0, cancelled = 0, stale = 0 }
local function reap(entry, consumer, idle, number)
  if consumer ~= PARKED and idle < lease then return nil end
  local task = task_of(class, entry)
  if not task then return restore(class, entry) and 'anew' or 'stale' end
  local record = load(task)
  if not record or record.entry ~= entry then
    drop(class, entry)
    return 'stale'
  end
  if consumer == PARKED then
    if not refused_by_all(record) then return nil end
    record_refusals(task, record)
    return 'refused'
  end
  if number >= max_deliver and not is_cancelled(task) then
    bury(task, record, consumer, number, now)
    return 'dead'
  end
  local parked = park(task, record, number, 'call.requeued', agent_of(consumer), 'its lease expired', now)
  return parked and 'parked' or 'cancelled'
end

local page = group_call('XPENDING', stream, GROUP, from, '+', BATCH)
-- Without its group a queue waits for its coordinator, which makes it anew (CL-58).
if not page then return { 'ok', 0, 0, 0, 0, 0, 0, '' } end
for _, pending in ipairs(page) do
  local what = reap(pending[1], pending[2], pending[3], pending[4])
  if what then counts[what] = counts[what] + 1 end
end

-- Slots of agents that ended leave their names; they are forgotten when they hold nothing and have been silent for long.
if from == '-' then
  for i, each in ipairs(redis.call('XINFO', 'CONSUMERS', stream, GROUP)) do
    if i > BATCH then break end
    local idle_for_long = value_of(each, 'idle') > 3600000 and value_of(each, 'pending') == 0
    if idle_for_long then redis.call('XGROUP', 'DELCONSUMER', stream, GROUP, value_of(each, 'name')) end
  end
end

local last = #page == BATCH and page[BATCH][1] or ''
return { 'ok', counts.parked, counts.dead, counts.anew, counts.refused, counts.cancelled, counts.stale, last }
