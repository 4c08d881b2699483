-- Answers how many queued tasks were recorded, and whether there may be more.
local state = redis.call('HGET', META, 'state')
if not state then return { 0, 0 } end
if state ~= 'cancelled' then
  redis.call('HSET', META, 'state', 'cancelled')
  event('queue.cancelled')
end
local now = now_ms()
local recorded = 0
local signalled = {}

local function record_entry(class, entry, task)
  -- Of an entry that was deleted only the task's own note is left.
  task = task or redis.call('HGET', TASK, field_of(class, entry))
  local record = task and load(task)
  if record and record.entry == entry then
    record_verdict(task, record, 'cancelled', 'its queue was cancelled', now)
  else
    drop(class, entry)
  end
  recorded = recorded + 1
end

for class, stream in pairs(STREAMS) do
  local summary = group_call('XPENDING', stream, GROUP)
  if summary then
    for _, each in ipairs(summary[4] or {}) do
      local name = agent_of(each[1])
      if each[1] ~= PARKED and not signalled[name] then
        signalled[name] = true
        redis.call('PUBLISH', 'ft:ctl:' .. name, QUEUE .. ' *')
      end
    end
    if recorded < BATCH then
      for _, pending in ipairs(redis.call('XPENDING', stream, GROUP, '-', '+', BATCH - recorded, PARKED)) do
        record_entry(class, pending[1], task_of(class, pending[1]))
      end
    end
    if recorded < BATCH then
      local last = value_of(redis.call('XINFO', 'GROUPS', stream)[1], 'last-delivered-id')
      for _, entry in ipairs(redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', BATCH - recorded)) do
        record_entry(class, entry[1], entry[2][2])
      end
    end
  end
end
redis.call('PUBLISH', 'ft:ctl:{' .. QUEUE .. '}', QUEUE .. ' *')
return { recorded, recorded >= BATCH and 1 or 0 }
