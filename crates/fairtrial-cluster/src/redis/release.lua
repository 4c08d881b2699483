-- ARGV: class, task, entry, delivery number, consumer, agent's nonce, kind, reason.
-- Kinds: `uncounted`, `counted`, and refusals: `setup`, `protocol`.
local class, task, entry, consumer, nonce = ARGV[2], ARGV[3], ARGV[4], ARGV[6], ARGV[7]
local number, kind, reason = tonumber(ARGV[5]), ARGV[8], ARGV[9]
local record = load(task)
if not record or record.entry ~= entry or not owns(class, entry, number, consumer) then return 'lost' end
local now = now_ms()
local name = agent_of(consumer)
-- A deleted entry cannot be parked: its task begins again, with what is known of it.
local function give_back(lowered, event_name)
  if task_of(class, entry) then
    park(task, record, lowered, event_name, name, reason, now)
  else
    add_anew(task, record)
  end
  return 'released'
end
if kind == 'counted' then
  record.error = reason
  if number >= tonumber(redis.call('HGET', META, 'max_deliver')) then
    bury(task, record, consumer, number, now)
    return 'dead'
  end
  return give_back(number, 'call.requeued')
elseif kind == 'uncounted' then
  return give_back(number - 1, 'call.requeued')
end
record.refusals[name] = { nonce = nonce, kind = kind, reason = reason }
return give_back(number - 1, 'call.refused')
