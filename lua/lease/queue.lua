-- The functions of the queue: places, the first waiter, grants to waiters.

-- count_waiter counts a waiter in or out at the nodes of its levels.
local function count_waiter(levels, by)
  for i = 1, #levels, 3 do
    local field = 'w:' .. levels[i]
    local limit, waiters = string.match(get(field) or '', '^(%d+),(%d+)$')
    waiters = (waiters or 0) + by
    scope.fields[field] = waiters > 0 and string.format('%s,%d', limit or levels[i + 2], waiters)
    scope.changed[field] = true
  end
end

local function dequeue(id, r)
  call('ZREM', KEYS[3], r.levels[#r.levels - 2] .. ' ' .. r.place .. ' ' .. id)
  count_waiter(r.levels, -1)
  scope.places = scope.places - call('ZREM', KEYS[4], id)
end

-- head returns the id of the first waiter at a node or at a ready node below it. The
-- node's own waiters and those of the ready node with the lowest rank take turns by their tickets.
-- Depth ends the search where requests have placed nodes below one another in a circle.
local function head(node, depth)
  depth = depth or 0
  local from, to, after = node .. ' 0', node .. '!', #node + 2
  local here = call('ZRANGEBYLEX', KEYS[3], '[' .. from, '(' .. to, 'LIMIT', '0', '1')[1]
  local below = scope.nodes > 0 and
    call('ZRANGEBYLEX', KEYS[3], '[~' .. from, '(~' .. to, 'LIMIT', '0', '1')[1]
  if below and depth < 16 and (not here or
    string.sub(below, after + 18, after + 33) < string.sub(here, after, after + 15)) then
    local child = string.sub(below, after + 35)
    local id = head(child, depth + 1)
    if id then
      return id
    end
    -- The last that waited there had placed the child below another parent.
    call('ZREM', KEYS[3], below)
    scope.fields['n:' .. child], scope.changed['n:' .. child] = false, true
    scope.nodes = scope.nodes - 1
    return head(node, depth)
  elseif here then
    return string.sub(here, after + 17)
  end
end

-- full tells whether no waiter has room at a node where no node below it is ready. Each weighs at
-- least 1.
local function full(node)
  if scope.nodes > 0 then
    return false
  end
  local limit, used = string.match(get('w:' .. node) or '', '^%d+'), (get('u:' .. node) or 0) + 0
  return not limit or used > 0 and used >= limit + 0
end

-- refresh queues the inner nodes of the levels at their parents, or removes them.
local function refresh(levels)
  for i = #levels - 2, 4, -3 do
    local node, parent = levels[i], levels[i - 3]
    local id, before, rank = not full(node) and head(node), get('n:' .. node), nil
    local r = id and load_record(id)
    if r and has_room(r.levels, node) then
      rank = parent .. ' ' .. fair().rank_at(node, r, parent, levels[i - 1] + 0)
    end
    if before and before ~= rank then
      call('ZREM', KEYS[3], '~' .. before .. ' ' .. node)
      scope.fields['n:' .. node], scope.changed['n:' .. node] = false, true
      scope.nodes = scope.nodes - 1
    end
    if rank and before ~= rank then
      call('ZADD', KEYS[3], '0', '~' .. rank .. ' ' .. node)
      scope.fields['n:' .. node], scope.changed['n:' .. node] = rank, true
      scope.nodes = scope.nodes + 1
    end
    if not id and not get('u:' .. node) then
      fair().settle_idle(node, parent)
    end
  end
end

-- promote grants leases to the first waiters while there is room, at most 64. It checks every level,
-- because requests may place a node below different parents. own is the id that acquires: its reply
-- tells it of the grant.
local function promote(node, own)
  for i = 0, 64 do
    local id = not full(node) and head(node)
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
    if #r.levels > 3 then
      fair().advance(r)
    end
    grant(id, r.place, r.request, lease, r.levels)
    refresh(r.levels)
    if id ~= own then
      local used = get('u:' .. r.levels[#r.levels - 2]) + 0
      publish(r.channel, string.format('%s %s %.0f %.0f', id, scope.token, lease, used))
    end
  end
end
