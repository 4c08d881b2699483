-- ARGV: of each task its id, class, queue timeout in ms (-1: none) and envelope. An answer for each.
local answers, ids = {}, {}
for i = 2, #ARGV, 4 do ids[#ids + 1] = ARGV[i] end
local meta = redis.call('HMGET', META, 'state', 'max_queue', told('cpu'), told('timing'), 'timed')
if meta[1] ~= 'open' and meta[1] ~= 'paused' then
  for i = 1, #ids do answers[i] = 'closed' end
  return answers
end
local has_hint, is_timed = { cpu = meta[3], timing = meta[4] }, meta[5]
local results = redis.call('HMGET', RES, unpack(ids))
local tasks = redis.call('HMGET', TASK, unpack(ids))
local room = tonumber(meta[2]) - redis.call('HLEN', TASK) / 2 - redis.call('HLEN', RES)
local added, records = {}, {}

-- Submitted before, and wanted again, even if somebody cancelled it. An entry that was lost meanwhile is added anew.
local function seen_again(task, known)
  redis.call('SREM', CANCEL, task)
  make_group(STREAMS[known.class])
  local who = holder(known.class, known.entry)
  local is_leased = who and who ~= PARKED
  if not is_leased and not task_of(known.class, known.entry) then add_anew(task, known) end
end

local function add(task, class, timeout, envelope)
  local entry = redis.call('XADD', STREAMS[class], '*', 'task', task)
  local since = tonumber(string.match(entry, '^%d+'))
  local record = { class = class, entry = entry, timeout = timeout, since = since, refusals = {}, envelope = envelope }
  for _, each in ipairs({ task, cmsgpack.pack(record), field_of(class, entry), task }) do
    records[#records + 1] = each
  end
  event('submit', task)
  if timeout >= 0 and not is_timed then
    redis.call('HSET', META, 'timed', 1) -- a note that entries may wait too long
    is_timed = true
  end
  if not has_hint[class] then
    redis.call('HSET', META, told(class), 1)
    wake(class)
    has_hint[class] = true
  end
  added[task] = true
end

for i, task in ipairs(ids) do
  if results[i] then
    answers[i] = 'done'
  elseif added[task] then
    answers[i] = 'dup'
  elseif tasks[i] and unpacked(tasks[i]) then
    seen_again(task, unpacked(tasks[i]))
    answers[i] = 'dup'
  elseif room <= 0 then
    answers[i] = 'full'
  else
    local at = 4 * i - 1
    add(task, ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2])
    room = room - 1
    answers[i] = 'ok'
  end
end
if records[1] then redis.call('HSET', TASK, unpack(records)) end
return answers
