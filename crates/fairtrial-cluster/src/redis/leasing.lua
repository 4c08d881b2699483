-- What `lease` and `commit` share.

-- The next task of a class for a slot. `held`: the oldest entries that the slot has, if they are known.
local function lease(class, consumer, name, nonce, held)
  local stream = STREAMS[class]
  local meta = redis.call('HMGET', META, 'state', 'max_inflight', 'lease', told(class), has_parked(class))
  if not meta[1] then return { 'gone' } end
  held = held or held_by(class, consumer, '1')
  if not held then return { 'gone' } end

  -- Whoever finds nothing waits for the next hint.
  local function nothing()
    if meta[4] then redis.call('HDEL', META, told(class)) end
    return { 'empty' }
  end

  local function give(task, record, entry, number)
    return { 'task', task, entry, number, record.envelope, meta[3], math.max(0, now_ms() - record.since) }
  end

  if held[1] then
    local entry, number = held[1][1], held[1][4]
    local found = task_of(class, entry)
    -- An entry that was deleted is its holder's until it is reaped: of it only the task's own note is left.
    local task = found or redis.call('HGET', TASK, field_of(class, entry))
    local record = task and load(task)
    if record and record.entry == entry then
      if found then redis.call('XCLAIM', stream, GROUP, consumer, 0, entry, 'JUSTID') end
      return give(task, record, entry, number)
    end
    drop(class, entry)
  end

  if meta[1] ~= 'open' or has_most(meta[2]) then return nothing() end

  local function next_new()
    local read = group_call('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', '1', 'STREAMS', stream, '>')
    if not read then return nil end
    local entry, task = read[1][2][1][1], read[1][2][1][2][2]
    return entry, 0, task, load(task)
  end

  for _ = 1, BATCH do
    local entry, number, task, record
    if meta[5] then entry, number, task, record = next_parked(class, name, nonce) end
    local parked = entry ~= nil
    if not parked then entry, number, task, record = next_new() end
    if not entry then return nothing() end
    if not task then
      restore(class, entry)
    elseif not record or record.entry ~= entry then
      drop(class, entry)
    elseif has_waited_too_long(record, now_ms()) then
      record_queue_timeout(task, record, now_ms())
    else
      number = number + 1
      if parked then
        redis.call('XCLAIM', stream, GROUP, consumer, 0, entry, 'RETRYCOUNT', number, 'JUSTID')
      end
      event('call.leased', task, name, '{"delivery":' .. number .. '}')
      return give(task, record, entry, number)
    end
  end
  return nothing()
end
