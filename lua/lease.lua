-- Grants, renews and releases the leases of a semaphore, and queues who waits for one. All that share an outermost key are
-- one scope.
--
-- KEYS   holders (sorted set: id, end of its lease), records (hash), waiters (sorted set, by text: "node ticket id"),
--        patience (sorted set: id, end of the waiter's lease; "!id", until when it is known that it was forced out), ready (sorted set, by text: "node ticket child")
-- ARGV   operation, then
--        acquire  id, waiter's lease, most waiters or 0 not to wait, priority 0 to 9, longest hold or 0, lease, channel,
--                 metadata, then for each level, outermost first: node, weight, limit
--        renew    lease, ids
--        release  ids
--        force    ids
--        list     nothing
--        Times are in microseconds. No text holds a space.
-- Reply  acquire  1 if held, 0 if waiting, -1 if there is no room, -2 if the queue is full, -3 if it was forced out; token if held, else the last one
--                 given; position in the queue from 0; time until the first lease of the scope ends, -1 if there is none; mean
--                 hold; time until the lease ends, 0 if none is held; weight in use at each level
--        renew    for each id: time until its lease ends, 0 if it is unknown, -1 if it was forced out
--        release, force  for each id: 1 if it was held, 2 if it waited, 0 if it is unknown
--        list     now; for each holder: id, time until its lease ends, record; for each waiter: id, -1, record
--
-- A node is a level's key. Who waits, waits at the node of his innermost level. A node is ready if its head, the first that
-- waits at it or at a node ready below it, has room at it; then it stands in its parent's queue by its head's ticket. So a
-- node without room holds up nobody elsewhere, and every step is logarithmic in the number of waiters. Whoever frees
-- room grants it to the heads of the outermost nodes, by a short lease that they renew, and tells their channels: "id token
-- lease", and the weight in use at the innermost level; if there is more room than it grants at once, it tells the next
-- "id 0 0 0", who asks again then. Whoever was forced out is told "!id". A channel with a brace lies in the slot of the scope,
-- and is told by a sharded message.
--
-- A record is "ticket token granted" and what was asked for: "until lease channel metadata" and of each level "node weight
-- limit"; the token of who waits is 0. Other fields of the hash: u:node the weight in use, n:node the ticket by which the node
-- is ready, and scope, which is "now,ahead,token,ticket,hold,nodes,next,alive,evicted": the last time, and how far the
-- scope's clock is ahead of Redis's, because it does not go back; the last token and ticket; the mean hold; how many fields
-- n:node there are; a time before which no lease ends, of holders and waiters; one after which none does, and until which
-- the hash lives; a time after which nobody is known to have been forced out.
--
-- Most of what a script costs here is numbers turned into text, texts taken apart, and calls; hence the one field for all
-- that every operation needs.

local call, operation = redis.call, ARGV[1]

-- The hash, of which no field is read twice, and all are written at the end. A field that is not there is false.
local fields, changed, records = {}, {}, {}

local function get(field)
  local value = fields[field]
  if value == nil then
    value = call('HGET', KEYS[2], field)
    fields[field] = value
  end
  return value
end

local function set(field, value)
  fields[field], changed[field] = value, true
end

do
  local names = {'scope'}
  if operation == 'acquire' then
    names[2] = ARGV[2]
    for i = 10, #ARGV, 3 do
      names[#names + 1] = 'u:' .. ARGV[i]
    end
  elseif operation ~= 'list' then
    for i = operation == 'renew' and 3 or 2, math.min(#ARGV, 100) do
      names[#names + 1] = ARGV[i]
    end
  end
  local values = call('HMGET', KEYS[2], unpack(names))
  for i = 1, #names do
    fields[names[i]] = values[i]
  end
end

local last, ahead, token, ticket, hold, nodes, next_end, alive, last_evicted =
  string.match(fields.scope or '0,0,0,0,0,0,0,0,0', '(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)')
ahead = math.max(ahead + 0, last - now)
token = token + 0
ticket = ticket + 0
hold = hold + 0
nodes = nodes + 0
next_end = next_end + 0
alive = alive + 0
last_evicted = last_evicted + 0
now = now + ahead

local function load(id)
  local r = records[id]
  if r then
    return r
  end
  local record = get(id)
  if not record or not string.find(record, ' ', 1, true) then -- other fields are one word
    return nil
  end
  local place, number, granted, asked, longest, lease, channel, node, weight, limit, inner =
    string.match(record, '(%S+) (%S+) (%S+) ((%S+) (%S+) (%S+) %S+ (%S+) (%S+) (%S+)(.*))')
  local levels = {{node = node, weight = weight + 0, limit = limit + 0}}
  if inner ~= '' then
    for node, weight, limit in string.gmatch(inner, '(%S+) (%S+) (%S+)') do
      levels[#levels + 1] = {node = node, weight = weight + 0, limit = limit + 0}
    end
  end
  r = {
    ticket = place, token = number + 0, granted = granted + 0, asked = asked, longest = longest + 0, lease = lease + 0,
    channel = channel, levels = levels,
  }
  records[id] = r
  return r
end

local function save(id, r)
  records[id] = r
  set(id, string.format('%s %.0f %.0f %s', r.ticket, r.token, r.granted, r.asked))
end

local function used(node)
  return (get('u:' .. node) or 0) + 0
end

local function use(r, sign)
  for i = 1, #r.levels do
    local level = r.levels[i]
    local n = used(level.node) + sign * level.weight
    set('u:' .. level.node, n ~= 0 and n)
  end
end

-- All keys live until after the last lease. That of the hash is set half a minute later than is needed, so that this is
-- seldom; those of the sorted sets whenever something is put into one, because it may be a new one.
local touched, busy = {}, false -- busy: surely somebody holds or waits

local function put(key, ends, id)
  call('ZADD', KEYS[key], ends, id)
  touched[key], busy = true, true
  next_end = next_end == 0 and ends or math.min(next_end, ends)
  if ends > alive then
    alive, touched[2] = ends + 30000000, true
  end
end

local function enter(key, place)
  call('ZADD', KEYS[key], '0', place)
  touched[key] = true
end

local function place(id, r)
  return r.levels[#r.levels].node .. ' ' .. r.ticket .. ' ' .. id
end

-- The ticket and the id of the first that waits at a node or below.
local function head(node)
  local from, to, after = '[' .. node .. ' ', '(' .. node .. '!', #node + 2
  local here = call('ZRANGEBYLEX', KEYS[3], from, to, 'LIMIT', '0', '1')[1]
  local below = nodes > 0 and call('ZRANGEBYLEX', KEYS[5], from, to, 'LIMIT', '0', '1')[1]
  if below and (not here or string.sub(below, after, after + 16) < string.sub(here, after, after + 16)) then
    return head(string.sub(below, after + 18))
  elseif here then
    return string.sub(here, after, after + 16), string.sub(here, after + 18)
  end
end

-- Whether there is room for it, at one node or at all its levels.
local function room(r, node)
  for i = 1, #r.levels do
    local level = r.levels[i]
    if (not node or node == level.node) and used(level.node) + level.weight > level.limit then
      return false
    end
  end
  return true
end

-- Brings the nodes of the levels up to date in their parents' queues.
local function refresh(levels)
  for i = #levels, 2, -1 do
    local node, parent = levels[i].node, levels[i - 1].node
    local first, id = head(node)
    if id and not room(load(id), node) then
      first = nil
    end
    local before = get('n:' .. node)
    if before and before ~= first then
      call('ZREM', KEYS[5], parent .. ' ' .. before .. ' ' .. node)
      set('n:' .. node, false)
      nodes = nodes - 1
    end
    if first and before ~= first then
      enter(5, parent .. ' ' .. first .. ' ' .. node)
      set('n:' .. node, first)
      nodes = nodes + 1
    end
  end
end

local function grant(id, r, lease)
  token = math.max(token + 1, now)
  r.token, r.granted = token, now
  put(1, now + lease, id)
  use(r, 1)
  save(id, r)
end

local function leave(id, r)
  call('ZREM', KEYS[3], place(id, r))
  call('ZREM', KEYS[4], id)
end

-- Who may not be told asks again after a while.
local function tell(channel, message)
  redis.pcall(string.find(channel, '{', 1, true) and 'SPUBLISH' or 'PUBLISH', channel, message)
end

-- Grants what there is room for, first come first served. All levels are looked at, in case a node is not below the same
-- ones in every request.
local function promote(node, own)
  for i = 0, 64 do
    local _, id = head(node)
    local r = id and load(id)
    if not r or not room(r) then
      return
    end
    if i == 64 then
      tell(r.channel, id .. ' 0 0 0')
      return
    end
    local lease = id == own and r.lease or math.min(r.lease, 5000000)
    leave(id, r)
    grant(id, r, lease)
    refresh(r.levels)
    if id ~= own then
      tell(r.channel, string.format('%s %.0f %.0f %.0f', id, token, lease, used(r.levels[#r.levels].node)))
    end
  end
end

local roots = {} -- of those who were dropped

-- Forgets a holder or a waiter, and says which it was.
local function drop(id)
  local r, was = load(id), 0
  if r then
    busy = false
    if r.token > 0 then
      was = 1
      call('ZREM', KEYS[1], id)
      use(r, -1)
    else
      was = 2
      leave(id, r)
    end
    records[id] = nil
    set(id, false)
    refresh(r.levels)
    roots[r.levels[1].node] = true
  end
  return was, r
end

-- Grants what they left, in a fixed order.
local function promote_all()
  local order = {}
  for node in pairs(roots) do
    order[#order + 1] = node
  end
  table.sort(order)
  roots = {}
  for i = 1, #order do
    promote(order[i])
  end
end

-- Whether it was forced out, of who neither holds nor waits.
local function evicted(id)
  return last_evicted > now and (call('ZSCORE', KEYS[4], '!' .. id) or 0) + 0 > now
end

if not fields.scope then -- without records nobody holds or waits
  call('DEL', KEYS[1], KEYS[3], KEYS[4], KEYS[5])
elseif next_end <= now then
  for _, key in ipairs({KEYS[1], KEYS[4]}) do
    for _, id in ipairs(call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', '0', '32')) do
      if drop(id) == 0 then
        call('ZREM', key, id)
      end
    end
  end
  next_end = 0
  for _, key in ipairs({KEYS[1], KEYS[4]}) do
    local first = tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2])
    if first then
      next_end = next_end == 0 and first or math.min(next_end, first)
    end
  end
  promote_all()
end

local reply = {}

if operation == 'acquire' then
  local id, patience, most = ARGV[2], ARGV[3] + 0, ARGV[4] + 0
  local asked = {
    ticket = '-', token = 0, granted = 0, asked = table.concat(ARGV, ' ', 6), longest = ARGV[6] + 0, lease = ARGV[7] + 0,
    channel = ARGV[8], levels = {},
  }
  for i = 10, #ARGV, 3 do
    asked.levels[#asked.levels + 1] = {node = ARGV[i], weight = ARGV[i + 1] + 0, limit = ARGV[i + 2] + 0}
  end
  local root, leaf = asked.levels[1].node, asked.levels[#asked.levels].node
  local status, left, r = 0, 0, load(id)
  if r and r.token > 0 then
    local ends, wanted = (call('ZSCORE', KEYS[1], id) or 0) + 0, now + r.lease
    if r.longest > 0 then
      wanted = math.min(wanted, r.granted + r.longest)
    end
    if wanted > ends then
      put(1, wanted, id)
    end
    left = math.max(wanted, ends, now) - now
  elseif r then
    asked.ticket = r.ticket
    r = asked
    save(id, r)
    put(4, now + patience, id)
    touched[3], touched[5] = true, touched[5] or #r.levels > 1
    refresh(r.levels)
    promote(root, id)
  elseif evicted(id) then
    status = -3
  else
    r = asked
    local fits, first = true, true
    for i = 1, #r.levels do
      local node = r.levels[i].node
      fits = fits and room(r, node)
      first = first and fits and not head(node)
    end
    if fits and first then
      grant(id, r, r.lease)
    elseif most == 0 and not fits then
      status = -1
    elseif most > 0 and call('ZLEXCOUNT', KEYS[3], '[' .. leaf .. ' ', '(' .. leaf .. '!') >= most then
      status = -2
    else
      -- First the newcomer waits, then the first are granted, and then we see whether it was among them.
      ticket = math.max(ticket + 1, now)
      r.ticket = ARGV[5] .. string.format('%016.0f', ticket)
      save(id, r)
      enter(3, place(id, r))
      put(4, now + patience, id)
      touched[5] = touched[5] or #r.levels > 1
      refresh(r.levels)
      if fits or #r.levels > 1 then -- else nobody is let in by who came
        promote(root, id)
      end
      if most == 0 and r.token == 0 then
        drop(id)
        status = -1
      end
    end
  end
  local position = 0
  if status == 0 and r.token > 0 then
    status = 1
    left = left > 0 and left or r.lease
  elseif status == 0 then
    position = call('ZLEXCOUNT', KEYS[3], '[' .. leaf .. ' ', '(' .. place(id, r))
  end
  local first = call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')[2]
  reply = {status, status == 1 and r.token or token, position, first and math.max(0, first - now) or -1, hold, left}
  for i = 1, #asked.levels do
    reply[#reply + 1] = used(asked.levels[i].node)
  end
elseif operation == 'renew' then
  for i = 3, #ARGV do
    local id = ARGV[i]
    reply[i - 2] = 0
    local r = load(id)
    if r and r.token > 0 then
      local ends, wanted = (call('ZSCORE', KEYS[1], id) or 0) + 0, now + ARGV[2]
      if r.longest > 0 then
        wanted = math.min(wanted, r.granted + r.longest)
      end
      if wanted > ends then
        put(1, wanted, id)
        ends = wanted
      end
      reply[i - 2] = math.max(1, ends - now)
    elseif evicted(id) then
      reply[i - 2] = -1
    end
  end
elseif operation == 'release' or operation == 'force' then
  for i = 2, #ARGV do
    local id = ARGV[i]
    local ends = operation == 'force' and tonumber(call('ZSCORE', KEYS[1], id) or call('ZSCORE', KEYS[4], id))
    local was, r = drop(id)
    reply[i - 1] = was
    if was == 1 and operation == 'release' then
      local took = now - r.granted
      hold = math.max(1, hold == 0 and took or hold + math.floor((took - hold) / 8))
    elseif was > 0 and operation == 'force' then
      -- It is known for a lease longer than it would have lived, for whoever could not ask before.
      ends = ends + r.lease
      put(4, ends, '!' .. id)
      last_evicted = math.max(ends, last_evicted)
      tell(r.channel, '!' .. id)
    elseif was == 0 and operation == 'release' and evicted(id) then
      call('ZREM', KEYS[4], '!' .. id)
      busy = false
    end
  end
  promote_all()
elseif operation == 'list' then
  reply[1] = now
  local holders = call('ZRANGE', KEYS[1], '0', '-1', 'WITHSCORES')
  for i = 1, #holders, 2 do
    reply[#reply + 1] = holders[i]
    reply[#reply + 1] = math.max(0, holders[i + 1] - now)
    reply[#reply + 1] = get(holders[i]) or ''
  end
  for _, member in ipairs(call('ZRANGE', KEYS[3], '0', '-1')) do
    local id = string.match(member, '(%S+)$')
    reply[#reply + 1] = id
    reply[#reply + 1] = -1
    reply[#reply + 1] = get(id) or ''
  end
end

-- What is idle is deleted.
if not busy and call('ZCARD', KEYS[1]) == 0 and call('ZCARD', KEYS[4]) == 0 then
  call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
  return reply
end
local kept, gone = {'HSET', KEYS[2], 'scope'}, {'HDEL', KEYS[2]}
kept[4] = string.format('%.0f,%.0f,%.0f,%.0f,%.0f,%.0f,%.0f,%.0f,%.0f',
  now, ahead, token, ticket, hold, nodes, next_end, alive, last_evicted)
for field in pairs(changed) do
  local value = fields[field]
  if value then
    kept[#kept + 1], kept[#kept + 2] = field, value
  else
    gone[#gone + 1] = field
  end
  if #kept > 1000 then
    call(unpack(kept))
    kept = {'HSET', KEYS[2]}
  end
  if #gone > 1000 then
    call(unpack(gone))
    gone = {'HDEL', KEYS[2]}
  end
end
if #kept > 2 then
  call(unpack(kept))
end
if #gone > 2 then
  call(unpack(gone))
end
local ttl = string.format('%.0f', math.floor((alive - now) / 1000) + 60000 + margin)
for key in pairs(touched) do
  call('PEXPIRE', KEYS[key], ttl)
end
return reply
