-- What all scripts of a queue begin with.
-- KEYS: the eight keys of one queue, in this order. ARGV[1]: the queue's name.
-- What may be refused for want of memory comes first or after another write: a script never stops half-way.

local META, TASK, RES, CANCEL, DEAD, EV = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local GROUP = 'agents'
-- Entries of the event stream, each of one script: of 10,000 tasks, as many as a queue holds unless it is told otherwise. The
-- stream is most of what a server's memory grows by (CL-80). A text, as all numbers that are given to commands on the way of
-- every call: others are printed first, which takes as long as most commands.
local KEPT = '10000'

-- What happened, as names and values: task, agent and data with blanks between them. Where task or agent is `*`, it is that
-- of the event before: the stream of events is the longest thing that a server keeps.
local happened, last_task, last_agent = {}, '', ''

local function event(name, task, agent, data)
  task, agent = task or '', agent or ''
  happened[#happened + 1] = name
  happened[#happened + 1] = (task ~= '' and task == last_task and '*' or task) .. ' '
    .. (agent ~= '' and agent == last_agent and '*' or agent) .. ' ' .. (data or '')
  last_task, last_agent = task, agent
end

-- Tells all of it by one entry. Each script ends with this.
local function tell()
  if not happened[1] then return nil end
  local id = redis.call('XADD', EV, 'MAXLEN', '~', KEPT, '*', unpack(happened))
  happened, last_task, last_agent = {}, '', ''
  return id
end
