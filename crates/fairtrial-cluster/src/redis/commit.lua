-- ARGV: class, task, entry, delivery number, consumer, result, what `complete` says; the class of which the slot wants its
-- next task, or nothing, and its agent's nonce; then events: name, task, agent, data.
-- Answers what became of the commit, and of the lease.
local class, task, entry, number, consumer = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local result, complete, next_class, nonce = ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local name = agent_of(consumer)

-- A slot has one entry; a lease whose reply was lost may have given it another.
local held = held_by(class, consumer, '3') or {}
local place
for i, each in ipairs(held) do
  if each[1] == entry and each[4] == number then place = i end
end
local owned = place or owns(class, entry, number, consumer)

local function commit()
  -- The note of an entry is there as long as its task is, and a task only until it has a result.
  if owned and redis.call('HGET', TASK, field_of(class, entry)) == task then
    finish(task, { class = class, entry = entry }, result, name, complete, 11)
    return { 'committed' }
  end
  local stored = redis.call('HGET', RES, task)
  if stored then
    if owned then drop(class, entry) end
    return { 'duplicate', stored }
  end
  return { redis.call('HEXISTS', TASK, task) == 0 and 'unknown' or 'fenced' }
end

local answer = commit()
if next_class == '' then return { answer } end
-- What was asked above is still true but for the entry that is committed.
if answer[1] == 'committed' and place and next_class == class then
  table.remove(held, place)
  return { answer, lease(class, consumer, name, nonce, held) }
end
return { answer, lease(next_class, consumer, name, nonce) }
