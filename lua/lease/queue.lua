-- The functions of the queue: places, the first waiter, grants to waiters, and what a caller that
-- leaves makes room for.
local function insert(member)
  call('ZADD', KEYS[3], '0', member)
end

local function place(id, ticket, levels)
  return levels[#levels - 2] .. ' ' .. ticket .. ' ' .. id
end

-- count_waiter counts a waiter in or out at the nodes of its levels.
local function count_waiter(levels, by)
  for i = 1, #levels, 3 do
    local field = 'w:' .. levels[i]
    local limit, waiters = string.match(get(field) or '', '^(%d+),(%d+)$')
    waiters = (waiters or 0) + by
    fields[field] = waiters > 0 and string.format('%s,%d', limit or levels[i + 2], waiters)
    changed[field] = true
  end
end

local function dequeue(id, r)
  call('ZREM', KEYS[3], place(id, r.place, r.levels))
  count_waiter(r.levels, -1)
  places = places - call('ZREM', KEYS[4], id)
end

local function waiters_before(node, place)
  return call('ZLEXCOUNT', KEYS[3], '[' .. node .. ' ', '(' .. node .. ' ' .. place)
end

-- head returns the id of the first waiter at a node or at a ready node below it. The
-- node's own waiters and those of the ready node with the lowest rank take turns by their tickets.
-- Depth ends the search where requests have placed nodes below one another in a circle.
local function head(node, depth)
  depth = depth or 0
  local from, to, after = node .. ' 0', node .. '!', #node + 2
  local here = call('ZRANGEBYLEX', KEYS[3], '[' .. from, '(' .. to, 'LIMIT', '0', '1')[1]
  local below = nodes > 0 and
    call('ZRANGEBYLEX', KEYS[3], '[~' .. from, '(~' .. to, 'LIMIT', '0', '1')[1]
  if below and depth < 16 and (not here or
    string.sub(below, after + 18, after + 33) < string.sub(here, after, after + 15)) then
    return head(string.sub(below, after + 35), depth + 1)
  elseif here then
    return string.sub(here, after + 17)
  end
end

-- settle_idle closes an account of a node that neither waits nor holds, or keeps it as a debt while that is
-- ahead of the clock.
local function settle_idle(class, node, parent)
  local own, debts = account(class.account .. node), '~' .. parent .. class.debt
  if own and own > (account(class.clock .. parent) or 0) and
    call('ZLEXCOUNT', KEYS[3], '[' .. debts, '(' .. debts .. ':') < 64 + holders + places then
    insert(string.format('%s%016.0f %s', debts, own, node))
    touched[3] = true -- the key may be new
  elseif own then
    set_account(class.account .. node, false)
  end
end

-- refresh queues the inner nodes of the levels at their parents, or removes them.
local function refresh(levels)
  for i = #levels - 2, 4, -3 do
    local node, parent = levels[i], levels[i - 3]
    local id, before, rank = head(node), get('n:' .. node), nil
    local r = id and load_record(id)
    if r and has_room(r.levels, node) then
      rank = parent .. ' ' .. rank_at(node, r, parent, levels[i - 1] + 0)
    end
    if before and before ~= rank then
      call('ZREM', KEYS[3], '~' .. before .. ' ' .. node)
      fields['n:' .. node], changed['n:' .. node] = false, true
      nodes = nodes - 1
    end
    if rank and before ~= rank then
      insert('~' .. rank .. ' ' .. node)
      fields['n:' .. node], changed['n:' .. node] = rank, true
      nodes = nodes + 1
    end
    if not id and not get('u:' .. node) then
      settle_idle(front, node, parent)
      settle_idle(rear, node, parent)
    end
  end
end

local function enqueue(id, ticket, request, levels, patience)
  fields[id], changed[id] = ticket .. ' 0 0 ' .. request, true
  insert(place(id, ticket, levels))
  count_waiter(levels, 1)
  places = places + put(4, now + patience, id)
end

-- promote grants leases to the first waiters while there is room, at most 64. It checks every level,
-- because requests may place a node below different parents. own is the id that acquires: its reply
-- tells it of the grant.
local function promote(node, own)
  for i = 0, 64 do
    local id = head(node)
    local r = id and load_record(id)
    if not r or not has_room(r.levels) then
      return
    end
    if i == 64 then
      publish(r.channel, id .. ' 0 0 0')
      return
    end
    local lease = id == own and r.lease or math.min(r.lease, 5000000)
    dequeue(id, r)
    advance(r)
    grant(id, r.place, r.request, lease, r.levels)
    refresh(r.levels)
    if id ~= own then
      local used = get('u:' .. r.levels[#r.levels - 2]) + 0
      publish(r.channel, string.format('%s %s %.0f %.0f', id, token, lease, used))
    end
  end
end

-- adopt_limits lets the limits of a new caller hold for all that wait at its nodes, and grants what
-- they have room for then. A waiter that acquires again is not new.
local function adopt_limits(levels)
  local adopted = false
  for i = 1, places > 0 and #levels or 0, 3 do
    local field = 'w:' .. levels[i]
    local limit, waiters = string.match(get(field) or '', '^(%d+),(%d+)$')
    if limit and limit ~= levels[i + 2] then
      fields[field], changed[field] = levels[i + 2] .. ',' .. waiters, true
      adopted = true
    end
  end
  if adopted then
    refresh(levels)
    promote(levels[1])
  end
end

local dropped_roots = {} -- where drop left room

-- drop deletes a holder or a waiter. It returns 1 for a holder, 2 for a waiter or 0 for an unknown
-- id, and the record.
local function drop(id)
  local r, was, waited = load_record(id), 0, places > 0
  if r then
    if r.token ~= '0' then
      was, holders = 1, holders - 1
      call('ZREM', KEYS[1], id)
      add_weight(r.levels, -1)
      if waited then
        charge(r)
      end
    else
      was = 2
      dequeue(id, r)
    end
    fields[id], changed[id] = false, true
    local field = name_field(id, r.levels)
    if field and get(field) == id then
      fields[field], changed[field] = false, true
    end
    if waited then
      refresh(r.levels)
      dropped_roots[r.levels[1]] = true
    end
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

-- evict drops a holder or a waiter, tells it so, and marks its id. It returns what drop does.
local function evict(id)
  local ends = call('ZSCORE', KEYS[1], id) or call('ZSCORE', KEYS[4], id) or now -- Redis may have lost both
  local was, r = drop(id)
  if was > 0 then
    -- The mark outlives the lease by its length, for a holder that could not renew meanwhile.
    ends = ends + r.lease
    places = places + put(4, ends, '!' .. id)
    touched[4] = true -- Redis may have lost the key
    evicted_until = math.max(ends, evicted_until)
    publish(r.channel, '!' .. id)
  end
  return was, r
end

-- succeed evicts the earlier id of a name, and gives a slot of the same nodes and weights to the new one.
-- It reports whether it did.
local function succeed(id, request, lease, levels)
  local before = get(name_field(id, levels))
  if not before then
    return false
  end
  local was, r = evict(before)
  local same = was == 1 and #r.levels == #levels
  for i = 1, same and #levels or 0, 3 do
    same = same and r.levels[i] == levels[i] and r.levels[i + 1] + 0 == levels[i + 1] + 0
  end
  if same then
    grant(id, '-', request, lease, levels)
    refresh(levels)
  end
  promote_dropped()
  return same
end
