local patience, max_waiters = ARGV[3] + 0, ARGV[4] + 0
local background = patience < 0
local root, leaf = levels[1], levels[#levels - 2]

local function waiters_before(place)
  return call('ZLEXCOUNT', KEYS[3], '[' .. leaf .. ' ', '(' .. leaf .. ' ' .. place)
end

local status, left, position, place, own_token = 0, 0, nil, nil, nil
local r = scope.fields[id] and load_record(id)
if r and r.token ~= '0' then
  left, own_token = extend(ends, id, r.granted, r.longest, r.lease) - now, r.token
  if #ends > 2 then
    call(unpack(ends))
  end
elseif r then
  place = r.place
  if place >= '5' and not background then
    place = string.format('%016.0f', place - 5000000000000000)
    call('ZADD', KEYS[3], '0', leaf .. ' ' .. place .. ' ' .. id) -- first, so that the key does not vanish
    call('ZREM', KEYS[3], leaf .. ' ' .. r.place .. ' ' .. id)
  end
  scope.fields[id], scope.changed[id] = place .. ' 0 0 ' .. request, true
  put(4, now + math.abs(patience), id)
  refresh(levels)
  promote(root, id)
elseif is_evicted(id) then
  status = -3
else
  local succeeded = false
  if named then
--: evict
    -- The new id of a name evicts the earlier one, and gets a slot of the same nodes and weights from it.
    local before = get(name_field(id, levels))
    if before then
      local was, r = evict(before)
      succeeded = was == 1 and #r.levels == #levels
      for i = 1, succeeded and #levels or 0, 3 do
        succeeded = succeeded and r.levels[i] == levels[i] and r.levels[i + 1] + 0 == levels[i + 1] + 0
      end
      if succeeded then
        grant(id, '-', request, lease_time, levels)
        refresh(levels)
      end
      promote_dropped()
    end
  end
  if scope.places > 0 then
    -- The limits of a new caller hold for all that wait at its nodes. What they have room for then is
    -- granted. A waiter that acquires again is not new.
    local adopted = false
    for i = 1, #levels, 3 do
      local field = 'w:' .. levels[i]
      local limit, waiters = string.match(get(field) or '', '^(%d+),(%d+)$')
      if limit and limit ~= levels[i + 2] then
        scope.fields[field], scope.changed[field] = levels[i + 2] .. ',' .. waiters, true
        adopted = true
      end
    end
    if adopted then
      refresh(levels)
      promote(root)
    end
  end
  local fits = not succeeded and has_room(levels)
  local first = fits
  for i = 1, fits and scope.places > 0 and #levels or 0, 3 do
    first = first and not head(levels[i])
  end
  if first then
    grant(id, '-', request, lease_time, levels)
  elseif succeeded then
    status = 0
  elseif max_waiters == 0 and not fits then
    status = -1
  elseif max_waiters > 0 and scope.places >= max_waiters and
    call('ZLEXCOUNT', KEYS[3], '[' .. leaf .. ' ', '(' .. leaf .. (background and '!' or ' 5')) >=
      max_waiters then
    status = -2
  else
    -- The caller queues first: granting then goes by the queues alone, whether or not it may wait.
    scope.ticket = string.format('%016.0f', math.max(scope.ticket + 1, now))
    place = background and string.format('%016.0f', scope.ticket + 5000000000000000) or scope.ticket
    scope.fields[id], scope.changed[id] = place .. ' 0 0 ' .. request, true
    call('ZADD', KEYS[3], '0', leaf .. ' ' .. place .. ' ' .. id)
    count_waiter(levels, 1)
    scope.places = scope.places + put(4, now + math.abs(patience), id)
    position = waiters_before(place)
    scope.touched[3] = scope.touched[3] or position == 0 -- the key may be new
    local first = position == 0 and (scope.nodes == 0 or head(leaf) == id)
    if first then
      refresh(levels)
    end
    if fits or first and #levels > 3 then -- otherwise the new waiter makes no other ready
      promote(root, id)
      position = nil
    end
  end
  if named and scope.fields[id] then
    local field = name_field(id, levels)
    scope.fields[field], scope.changed[field] = id, true
  end
end
if status == 0 and not own_token then
  local number = string.match(scope.fields[id], '^%S+ (%S+)')
  if number ~= '0' then
    left, own_token = lease_time, number
  elseif max_waiters == 0 and not r then
    drop(id)
    promote_dropped() -- the ranks are new
    status = -1
  end
end
if own_token then
  status = 1
end
position = status == 0 and (position or waiters_before(place)) or 0
local first = status ~= 1 and position == 0 and
  call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')[2]
local wait = first and math.max(0, first - now) or -1
reply = {status, (own_token or scope.token) + 0, position, wait, scope.hold + 0, left, nil, nil}
for i = 1, #levels, 3 do
  reply[(i + 20) / 3] = (scope.fields['u:' .. levels[i]] or 0) + 0
end
