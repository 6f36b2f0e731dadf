-- Grants, renews and releases the leases of a semaphore, and queues who waits for one. All that share an outermost key are
-- one scope.
--
-- KEYS   holders (sorted set: id, end of its lease), records (hash), waiters (sorted set, by text: "node ticket id"),
--        patience (sorted set: id, end of the waiter's lease; "!id", until when it is known that it was forced out), ready (sorted set, by text: "node ticket child")
-- ARGV   operation, then
--        acquire  id, channel, lease, waiter's lease, longest hold or 0, most waiters or 0 not to wait, priority 0 to 9,
--                 metadata, then for each level, outermost first: node, limit, weight
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
-- A record is "ticket token granted until lease channel metadata" and of each level "node weight limit". Other fields of the
-- hash: u:node the weight in use, n:node the ticket by which the node is ready, token and ticket the last ones, hold the
-- mean hold, now the last time, ahead how far the scope's clock is ahead of Redis's: it does not go back; ready how many
-- fields n:node there are; evicted a time after which nobody is known to have been forced out; next a time before which no lease ends, of holders and waiters, and end one after which none does;
-- alive until when the hash surely lives.

-- The hash, of which no field is read twice, and all are written at the end. A field that is not there is false.
local fields, changed, records = {}, {}, {}

local function get(field)
  local value = fields[field]
  if value == nil then
    value = redis.call('HGET', KEYS[2], field)
    fields[field] = value
  end
  return value
end

local function set(field, value)
  fields[field], changed[field] = value, true
end

local function text(number)
  return string.format('%.0f', number)
end

local function number(field)
  return tonumber(get(field) or 0)
end

local operation = ARGV[1]
do
  local names = {'ahead', 'now', 'token', 'ticket', 'hold', 'ready', 'next', 'end', 'alive', 'evicted'}
  if operation == 'acquire' then
    names[#names + 1] = ARGV[2]
    for i = 10, #ARGV, 3 do
      names[#names + 1] = 'u:' .. ARGV[i]
    end
  elseif operation ~= 'list' then
    for i = 2, math.min(#ARGV, 100) do
      names[#names + 1] = ARGV[i]
    end
  end
  local values = redis.call('HMGET', KEYS[2], unpack(names))
  for i = 1, #names do
    fields[names[i]] = values[i]
  end
end

local ahead, last = number('ahead'), number('now')
if now + ahead < last then
  ahead = last - now
end
now = now + ahead

local function load(id)
  if records[id] then
    return records[id]
  end
  local record = get(id)
  if not record or not string.find(record, ' ', 1, true) then -- other fields are one word
    return nil
  end
  local words, levels = {}, {}
  for word in string.gmatch(record, '%S+') do
    words[#words + 1] = word
  end
  for i = 8, #words, 3 do
    levels[#levels + 1] = {node = words[i], weight = tonumber(words[i + 1]), limit = tonumber(words[i + 2])}
  end
  records[id] = {
    ticket = words[1], token = tonumber(words[2]), granted = tonumber(words[3]), longest = tonumber(words[4]),
    lease = tonumber(words[5]), channel = words[6], metadata = words[7], levels = levels,
  }
  return records[id]
end

local function save(id, r)
  local words = {r.ticket, text(r.token), text(r.granted), text(r.longest), text(r.lease), r.channel, r.metadata}
  for i = 1, #r.levels do
    local l = r.levels[i]
    words[#words + 1], words[#words + 2], words[#words + 3] = l.node, text(l.weight), text(l.limit)
  end
  records[id] = r
  set(id, table.concat(words, ' '))
end

local function forget(id)
  records[id] = nil
  set(id, false)
end

local function used(node)
  return number('u:' .. node)
end

local function use(r, sign)
  for i = 1, #r.levels do
    local n = used(r.levels[i].node) + sign * r.levels[i].weight
    set('u:' .. r.levels[i].node, n ~= 0 and text(n))
  end
end

-- Puts into a sorted set, which then lives until after the last lease.
local touched, busy = {}, false -- busy: surely somebody holds or waits

local function put(key, score, member)
  redis.call('ZADD', KEYS[key], text(score), member)
  touched[key] = true
  if score > 0 then
    busy = true
    set('next', text(math.min(score, get('next') and number('next') or score)))
    set('end', text(math.max(score, number('end'))))
  end
end

local function place(id, r)
  return r.levels[#r.levels].node .. ' ' .. r.ticket .. ' ' .. id
end

-- The ticket and the id of the first that waits at a node or below.
local function head(node)
  local from, to, after = '[' .. node .. ' ', '(' .. node .. '!', #node + 2
  local here = redis.call('ZRANGEBYLEX', KEYS[3], from, to, 'LIMIT', 0, 1)[1]
  local below = number('ready') > 0 and redis.call('ZRANGEBYLEX', KEYS[5], from, to, 'LIMIT', 0, 1)[1]
  if below and (not here or string.sub(below, after, after + 16) < string.sub(here, after, after + 16)) then
    return head(string.sub(below, after + 18))
  elseif here then
    return string.sub(here, after, after + 16), string.sub(here, after + 18)
  end
end

local function room(r, node)
  for i = 1, #r.levels do
    if r.levels[i].node == node then
      return used(node) + r.levels[i].weight <= r.levels[i].limit
    end
  end
  return true
end

local function room_at_all(r)
  for i = 1, #r.levels do
    if not room(r, r.levels[i].node) then
      return false
    end
  end
  return true
end

local function count_ready(by)
  local n = number('ready') + by
  set('ready', n ~= 0 and text(n))
end

-- Brings the nodes of the levels up to date in their parents' queues.
local function refresh(levels)
  for i = #levels, 2, -1 do
    local node, parent = levels[i].node, levels[i - 1].node
    local ticket, id = head(node)
    if id and not room(load(id), node) then
      ticket = nil
    end
    local before = get('n:' .. node)
    if before and before ~= ticket then
      redis.call('ZREM', KEYS[5], parent .. ' ' .. before .. ' ' .. node)
      set('n:' .. node, false)
      count_ready(-1)
    end
    if ticket and before ~= ticket then
      put(5, 0, parent .. ' ' .. ticket .. ' ' .. node)
      set('n:' .. node, ticket)
      count_ready(1)
    end
  end
end

local function grant(id, r, lease)
  r.token, r.granted = math.max(number('token') + 1, now), now
  set('token', text(r.token))
  put(1, now + lease, id)
  use(r, 1)
  save(id, r)
end

local function leave(id, r)
  redis.call('ZREM', KEYS[3], place(id, r))
  redis.call('ZREM', KEYS[4], id)
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
    if not r or not room_at_all(r) then
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
      tell(r.channel, table.concat({id, text(r.token), text(lease), text(used(r.levels[#r.levels].node))}, ' '))
    end
  end
end

-- Forgets a holder or a waiter, and says which it was.
local function drop(id)
  local r, was = load(id), 0
  if r then
    busy = false
    if redis.call('ZREM', KEYS[1], id) == 1 then
      was = 1
      use(r, -1)
    else
      was = 2
      leave(id, r)
    end
    forget(id)
    refresh(r.levels)
  end
  return was, r
end

-- In a fixed order.
local function promote_all(roots)
  local nodes = {}
  for node in pairs(roots) do
    nodes[#nodes + 1] = node
  end
  table.sort(nodes)
  for i = 1, #nodes do
    promote(nodes[i])
  end
end

-- Whether it was forced out, of who neither holds nor waits.
local function evicted(id)
  return number('evicted') > now and tonumber(redis.call('ZSCORE', KEYS[4], '!' .. id) or 0) > now
end

local roots = {}
if not get('now') then -- without records nobody holds or waits
  redis.call('DEL', KEYS[1], KEYS[3], KEYS[4], KEYS[5])
elseif number('next') <= now then
  for _, key in ipairs({KEYS[1], KEYS[4]}) do
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', text(now), 'LIMIT', 0, 32)) do
      local _, r = drop(id)
      if r then
        roots[r.levels[1].node] = true
      else
        redis.call('ZREM', key, id)
      end
    end
  end
  set('next', false)
  for _, key in ipairs({KEYS[1], KEYS[4]}) do
    local first = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
    if first then
      set('next', text(math.min(first, get('next') and number('next') or first)))
    end
  end
  promote_all(roots)
end

local reply = {}

if operation == 'acquire' then
  local id, most = ARGV[2], tonumber(ARGV[7])
  local fresh = {
    ticket = '-', token = 0, granted = 0, longest = tonumber(ARGV[6]), lease = tonumber(ARGV[4]), channel = ARGV[3],
    metadata = ARGV[9], levels = {},
  }
  for i = 10, #ARGV, 3 do
    fresh.levels[#fresh.levels + 1] = {node = ARGV[i], limit = tonumber(ARGV[i + 1]), weight = tonumber(ARGV[i + 2])}
  end
  local root, leaf = fresh.levels[1].node, fresh.levels[#fresh.levels].node
  local status, r = 0, load(id)
  if r and redis.call('ZSCORE', KEYS[1], id) then
    status = 1
  elseif r then
    r.levels, r.lease, r.channel = fresh.levels, fresh.lease, fresh.channel
    save(id, r)
    put(4, now + tonumber(ARGV[5]), id)
    touched[3], touched[5] = true, touched[5] or #r.levels > 1
    refresh(r.levels)
    promote(root, id)
  elseif evicted(id) then
    status = -3
  else
    r = fresh
    local fits, first = true, true
    for i = 1, #r.levels do
      local node = r.levels[i].node
      fits = fits and room(r, node)
      first = first and fits and not head(node)
    end
    if fits and first then
      grant(id, r, r.lease)
      status = 1
    elseif most == 0 and not fits then
      status = -1
    elseif most > 0 and redis.call('ZLEXCOUNT', KEYS[3], '[' .. leaf .. ' ', '(' .. leaf .. '!') >= most then
      status = -2
    else
      -- First the newcomer waits, then the first are granted, and then we see whether it was among them.
      local ticket = math.max(number('ticket') + 1, now)
      set('ticket', text(ticket))
      r.ticket = ARGV[8] .. string.format('%016.0f', ticket)
      save(id, r)
      put(3, 0, place(id, r))
      put(4, now + tonumber(ARGV[5]), id)
      touched[5] = touched[5] or #r.levels > 1
      refresh(r.levels)
      if fits or #r.levels > 1 then -- else nobody is let in by who came
        promote(root, id)
      end
      if most == 0 and not redis.call('ZSCORE', KEYS[1], id) then
        drop(id)
        status = -1
      end
    end
  end
  if status == 0 and redis.call('ZSCORE', KEYS[1], id) then
    status, r = 1, load(id)
  end
  local position, left = 0, 0
  if status == 1 then
    local until_ = now + r.lease
    if r.longest > 0 then
      until_ = math.min(until_, r.granted + r.longest)
    end
    local before = tonumber(redis.call('ZSCORE', KEYS[1], id))
    if until_ > before then
      put(1, until_, id)
    end
    left = math.max(until_, before, now) - now
  elseif status == 0 then
    position = redis.call('ZLEXCOUNT', KEYS[3], '[' .. leaf .. ' ', '(' .. place(id, load(id)))
  end
  local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  local token = status == 1 and r.token or number('token')
  reply = {status, token, position, first[2] and math.max(0, tonumber(first[2]) - now) or -1, number('hold'), left}
  for i = 1, #fresh.levels do
    reply[#reply + 1] = used(fresh.levels[i].node)
  end
elseif operation == 'renew' then
  local lease = tonumber(ARGV[2])
  for i = 3, #ARGV do
    local id = ARGV[i]
    reply[i - 2] = 0
    local until_, r = redis.call('ZSCORE', KEYS[1], id), load(id)
    if until_ and r then
      local wanted = now + lease
      if r.longest > 0 then
        wanted = math.min(wanted, r.granted + r.longest)
      end
      if wanted > tonumber(until_) then
        put(1, wanted, id)
        until_ = wanted
      end
      reply[i - 2] = math.max(1, tonumber(until_) - now)
    elseif evicted(id) then
      reply[i - 2] = -1
    end
  end
elseif operation == 'release' or operation == 'force' then
  roots = {}
  for i = 2, #ARGV do
    local id = ARGV[i]
    local ends = operation == 'force' and tonumber(redis.call('ZSCORE', KEYS[1], id) or redis.call('ZSCORE', KEYS[4], id))
    local was, r = drop(id)
    reply[i - 1] = was
    if r then
      roots[r.levels[1].node] = true
    end
    if was == 1 and operation == 'release' then
      local hold, took = number('hold'), now - r.granted
      hold = hold == 0 and took or hold + math.floor((took - hold) / 8)
      set('hold', text(math.max(1, hold)))
    elseif was > 0 and operation == 'force' then
      -- It is known for a lease longer than it would have lived, for whoever could not ask before.
      ends = ends + r.lease
      put(4, ends, '!' .. id)
      set('evicted', text(math.max(ends, number('evicted'))))
      tell(r.channel, '!' .. id)
    elseif was == 0 and operation == 'release' and evicted(id) then
      redis.call('ZREM', KEYS[4], '!' .. id)
      busy = false
    end
  end
  promote_all(roots)
elseif operation == 'list' then
  reply[1] = now
  local holders = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  for i = 1, #holders, 2 do
    reply[#reply + 1] = holders[i]
    reply[#reply + 1] = math.max(0, tonumber(holders[i + 1]) - now)
    reply[#reply + 1] = get(holders[i]) or ''
  end
  for _, member in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    local id = string.match(member, '(%S+)$')
    reply[#reply + 1] = id
    reply[#reply + 1] = -1
    reply[#reply + 1] = get(id) or ''
  end
end

-- What is idle is deleted; else all keys live until after the last lease.
if not busy and redis.call('ZCARD', KEYS[1]) == 0 and redis.call('ZCARD', KEYS[4]) == 0 then
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
  return reply
end
-- The hash lives half a minute longer than is needed, so that this is seldom.
local last_end = number('end')
if number('alive') < last_end then
  touched[2] = true
  set('alive', text(last_end + 30000000))
end
set('now', text(now))
set('ahead', text(ahead))
local kept, gone = {}, {}
local function write(most)
  if #kept > most then
    redis.call('HSET', KEYS[2], unpack(kept))
    kept = {}
  end
  if #gone > most then
    redis.call('HDEL', KEYS[2], unpack(gone))
    gone = {}
  end
end
for field in pairs(changed) do
  if fields[field] then
    kept[#kept + 1], kept[#kept + 2] = field, fields[field]
  else
    gone[#gone + 1] = field
  end
  write(1000)
end
write(0)
local ttl = text(math.floor((last_end - now) / 1000) + 60000 + margin)
for key, is in pairs(touched) do
  if is then
    redis.call('PEXPIRE', KEYS[key], ttl)
  end
end
return reply
