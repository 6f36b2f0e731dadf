-- The functions of the operations: records, weight in use, queues, grants. Then drops the leases
-- and places that have expired.
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

local function load_record(id)
  local r = records[id]
  if r then
    return r
  end
  local record = get(id)
  if not record or not string.find(record, ' ', 1, true) then -- an id may name another field
    return nil
  end
  local place, number, granted, request, longest, lease, channel, node, weight, limit, inner =
    string.match(record, '(%S+) (%S+) (%S+) ((%S+) (%S+) (%S+) %S+ (%S+) (%S+) (%S+)(.*))')
  local levels = {{node = node, weight = weight + 0, limit = limit + 0}}
  if inner ~= '' then
    for node, weight, limit in string.gmatch(inner, '(%S+) (%S+) (%S+)') do
      levels[#levels + 1] = {node = node, weight = weight + 0, limit = limit + 0}
    end
  end
  r = {
    ticket = place, token = number, granted = granted, request = request, longest = longest + 0,
    lease = lease + 0, channel = channel, levels = levels,
  }
  records[id] = r
  return r
end

local function save_record(id, r)
  records[id] = r
  set(id, r.ticket .. ' ' .. r.token .. ' ' .. r.granted .. ' ' .. r.request)
end

local function used(node)
  return (get('u:' .. node) or 0) + 0
end

local function add_weight(r, sign)
  for i = 1, #r.levels do
    local level = r.levels[i]
    local n = used(level.node) + sign * level.weight
    set('u:' .. level.node, n ~= 0 and text(n))
  end
end

local function insert(key, member)
  call('ZADD', KEYS[key], '0', member)
  touched[key] = true
end

local function place(id, r)
  return r.levels[#r.levels].node .. ' ' .. r.ticket .. ' ' .. id
end

-- head returns the ticket and the id of the first waiter at a node or at a ready node below it.
local function head(node)
  local from, to, after = '[' .. node .. ' ', '(' .. node .. '!', #node + 2
  local here = call('ZRANGEBYLEX', KEYS[3], from, to, 'LIMIT', '0', '1')[1]
  local below = nodes > 0 and call('ZRANGEBYLEX', KEYS[5], from, to, 'LIMIT', '0', '1')[1]
  if below and (not here or
    string.sub(below, after, after + 16) < string.sub(here, after, after + 16)) then
    return head(string.sub(below, after + 18))
  elseif here then
    return string.sub(here, after, after + 16), string.sub(here, after + 18)
  end
end

-- has_room tells whether the request fits at one node, or at all its levels if node is nil.
local function has_room(r, node)
  for i = 1, #r.levels do
    local level = r.levels[i]
    if (not node or node == level.node) and used(level.node) + level.weight > level.limit then
      return false
    end
  end
  return true
end

-- refresh queues the inner nodes of the levels at their parents, or removes them.
local function refresh(levels)
  for i = #levels, 2, -1 do
    local node, parent = levels[i].node, levels[i - 1].node
    local first, id = head(node)
    if id and not has_room(load_record(id), node) then
      first = nil
    end
    local before = get('n:' .. node)
    if before and before ~= first then
      call('ZREM', KEYS[5], parent .. ' ' .. before .. ' ' .. node)
      set('n:' .. node, false)
      nodes = nodes - 1
    end
    if first and before ~= first then
      insert(5, parent .. ' ' .. first .. ' ' .. node)
      set('n:' .. node, first)
      nodes = nodes + 1
    end
  end
end

local function grant(id, r, lease)
  r.token, r.granted = next_token(), at
  put(1, now + lease, id)
  add_weight(r, 1)
  save_record(id, r)
end

-- extend moves the end of a lease, never back, and returns it, at least now.
local function extend(id, r, lease)
  local ends, wanted = (call('ZSCORE', KEYS[1], id) or 0) + 0, now + lease
  if r.longest > 0 then
    wanted = math.min(wanted, r.granted + r.longest)
  end
  if wanted > ends then
    put(1, wanted, id)
  end
  return math.max(wanted, ends, now)
end

local function dequeue(id, r)
  call('ZREM', KEYS[3], place(id, r))
  call('ZREM', KEYS[4], id)
end

-- An ACL may forbid the channel. The waiter then finds its grant when it next acquires.
local function publish(channel, message)
  redis.pcall(string.find(channel, '{', 1, true) and 'SPUBLISH' or 'PUBLISH', channel, message)
end

-- promote grants leases to waiters in FIFO order while there is room, at most 64. It checks every
-- level, because requests may place a node below different parents. own is the id that acquires:
-- its reply tells it of the grant.
local function promote(node, own)
  for i = 0, 64 do
    local _, id = head(node)
    local r = id and load_record(id)
    if not r or not has_room(r) then
      return
    end
    if i == 64 then
      publish(r.channel, id .. ' 0 0 0')
      return
    end
    local lease = id == own and r.lease or math.min(r.lease, 5000000)
    dequeue(id, r)
    grant(id, r, lease)
    refresh(r.levels)
    if id ~= own then
      local use = used(r.levels[#r.levels].node)
      publish(r.channel, string.format('%s %s %.0f %.0f', id, token, lease, use))
    end
  end
end

local dropped_roots = {}

-- drop deletes a holder or a waiter. It returns 1 for a holder, 2 for a waiter or 0 for an unknown
-- id, and the record.
local function drop(id)
  local r, was = load_record(id), 0
  if r then
    busy = false
    if r.token ~= '0' then
      was = 1
      call('ZREM', KEYS[1], id)
      add_weight(r, -1)
    else
      was = 2
      dequeue(id, r)
    end
    records[id] = nil
    set(id, false)
    refresh(r.levels)
    dropped_roots[r.levels[1].node] = true
  end
  return was, r
end

-- promote_dropped grants what the dropped ids left, root by root in the order of their names.
local function promote_dropped()
  local order = {}
  for node in pairs(dropped_roots) do
    order[#order + 1] = node
  end
  table.sort(order)
  dropped_roots = {}
  for i = 1, #order do
    promote(order[i])
  end
end

-- is_evicted tells whether an id that neither holds nor waits has an eviction mark.
local function is_evicted(id)
  return evicted_until + 0 > now and (call('ZSCORE', KEYS[4], '!' .. id) or 0) + 0 > now
end

if not fields.scope then -- without its hash no holder or waiter can be served
  call('DEL', KEYS[1], KEYS[3], KEYS[4], KEYS[5])
elseif earliest_end + 0 <= now then
  for _, key in ipairs({KEYS[1], KEYS[4]}) do
    for _, id in ipairs(call('ZRANGEBYSCORE', key, '-inf', at, 'LIMIT', '0', '32')) do
      if drop(id) == 0 then
        call('ZREM', key, id)
      end
    end
  end
  earliest_end = '0'
  for _, key in ipairs({KEYS[1], KEYS[4]}) do
    local first = tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2])
    if first then
      note_end(first)
    end
  end
  promote_dropped()
end
