-- The records, the weight in use, the queues, and who is granted what of them: the functions of the operations. Then lets go
-- who is overdue.
local records = {}

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
    ticket = place, token = number, granted = granted, asked = asked, longest = longest + 0, lease = lease + 0,
    channel = channel, levels = levels,
  }
  records[id] = r
  return r
end

local function save(id, r)
  records[id] = r
  set(id, r.ticket .. ' ' .. r.token .. ' ' .. r.granted .. ' ' .. r.asked)
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
  r.token, r.granted = next_token(), at
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
      tell(r.channel, string.format('%s %s %.0f %.0f', id, token, lease, used(r.levels[#r.levels].node)))
    end
  end
end

local roots = {} -- of those who were dropped

-- Forgets a holder or a waiter, and says which it was.
local function drop(id)
  local r, was = load(id), 0
  if r then
    busy = false
    if r.token ~= '0' then
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
  return last_evicted + 0 > now and (call('ZSCORE', KEYS[4], '!' .. id) or 0) + 0 > now
end

if not fields.scope then -- without records nobody holds or waits
  call('DEL', KEYS[1], KEYS[3], KEYS[4], KEYS[5])
elseif next_end + 0 <= now then
  for _, key in ipairs({KEYS[1], KEYS[4]}) do
    for _, id in ipairs(call('ZRANGEBYSCORE', key, '-inf', at, 'LIMIT', '0', '32')) do
      if drop(id) == 0 then
        call('ZREM', key, id)
      end
    end
  end
  next_end = '0'
  for _, key in ipairs({KEYS[1], KEYS[4]}) do
    local first = tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2])
    if first then
      bound(first)
    end
  end
  promote_all()
end

