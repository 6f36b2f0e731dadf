-- What has expired goes first. Each operation sets reply and marks what it wrote in changed and
-- touched; lease.lua writes it at the end.
if not scope then -- without its hash no holder or waiter can be served
  call('DEL', KEYS[1], KEYS[3], KEYS[4], KEYS[5])
elseif expired then
  for key = 1, 4, 3 do
    for _, id in ipairs(call('ZRANGEBYSCORE', KEYS[key], '-inf', at, 'LIMIT', '0', '32')) do
      if drop(id) == 0 and call('ZREM', KEYS[key], id) == 1 and key == 4 then
        places = places - 1
      end
    end
  end
  earliest_end = 0
  for key = 1, 4, 3 do
    local first = call('ZRANGE', KEYS[key], '0', '0', 'WITHSCORES')[2]
    first = first and math.floor(first / 1000)
    if first and (earliest_end == 0 or first < earliest_end) then
      earliest_end = first
    end
  end
  promote_dropped()
end

if operation == 'acquire' then
  local patience, max_waiters = ARGV[3] + 0, ARGV[4] + 0
  local background = patience < 0
  local root, leaf = levels[1], levels[#levels - 2]
  local status, left, position, place, own_token = 0, 0, nil, nil, nil
  local r = fields[id] and load_record(id)
  if r and r.token ~= '0' then
    left, own_token = extend(id, r, r.lease) - now, r.token
  elseif r then
    place = r.place
    if place >= '5' and not background then
      place = string.format('%016.0f', place - 5000000000000000)
      insert(leaf .. ' ' .. place .. ' ' .. id) -- first, so that the key does not vanish
      call('ZREM', KEYS[3], leaf .. ' ' .. r.place .. ' ' .. id)
    end
    fields[id], changed[id] = place .. ' 0 0 ' .. request, true
    put(4, now + math.abs(patience), id)
    refresh(levels)
    promote(root, id)
  elseif is_evicted(id) then
    status = -3
  else
    local succeeded = named and succeed(id, request, lease_time, levels)
    adopt_limits(levels)
    local fits = not succeeded and has_room(levels)
    local first = fits
    for i = 1, fits and places > 0 and #levels or 0, 3 do
      first = first and not head(levels[i])
    end
    if first then
      grant(id, '-', request, lease_time, levels)
    elseif succeeded then
      status = 0
    elseif max_waiters == 0 and not fits then
      status = -1
    elseif max_waiters > 0 and places >= max_waiters and
      call('ZLEXCOUNT', KEYS[3], '[' .. leaf .. ' ', '(' .. leaf .. (background and '!' or ' 5')) >=
        max_waiters then
      status = -2
    else
      -- The caller queues first: granting then goes by the queues alone, whether or not it may wait.
      ticket = string.format('%016.0f', math.max(ticket + 1, now))
      place = background and string.format('%016.0f', ticket + 5000000000000000) or ticket
      enqueue(id, place, request, levels, math.abs(patience))
      position = waiters_before(leaf, place)
      touched[3] = touched[3] or position == 0 -- the key may be new
      local first = position == 0 and head(leaf) == id
      if first then
        refresh(levels)
      end
      if fits or first and #levels > 3 then -- otherwise the new waiter makes no other ready
        promote(root, id)
        position = nil
      end
    end
    if named and fields[id] then
      local field = name_field(id, levels)
      fields[field], changed[field] = id, true
    end
  end
  if status == 0 and not own_token then
    local number = string.match(fields[id], '^%S+ (%S+)')
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
  position = status == 0 and (position or waiters_before(leaf, place)) or 0
  local first = status ~= 1 and position == 0 and
    call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')[2]
  local wait = first and math.max(0, first - now) or -1
  reply = {status, (own_token or token) + 0, position, wait, hold + 0, left, nil, nil}
  for i = 1, #levels, 3 do
    reply[(i + 20) / 3] = (fields['u:' .. levels[i]] or 0) + 0
  end
elseif operation == 'renew' then
  renew()
elseif operation == 'release' then
  for i = 2, #ARGV do
    local was, r = drop(ARGV[i])
    if was == 1 then
      hold = mean_hold(hold, now - r.granted)
    elseif was == 0 and is_evicted(ARGV[i]) then
      places = places - call('ZREM', KEYS[4], '!' .. ARGV[i])
    end
  end
  promote_dropped()
  reply = {0}
elseif operation == 'force' then
  for i = 2, #ARGV do
    reply[i - 1] = evict(ARGV[i])
  end
  promote_dropped()
elseif operation == 'list' then
  reply[1] = now
  local held = call('ZRANGE', KEYS[1], '0', '-1', 'WITHSCORES')
  for i = 1, #held, 2 do
    reply[#reply + 1] = held[i]
    reply[#reply + 1] = math.max(0, held[i + 1] - now)
    reply[#reply + 1] = get(held[i]) or ''
  end
  for _, member in ipairs(call('ZRANGEBYLEX', KEYS[3], '-', '(~')) do
    local id = string.match(member, '^.* (%S+)$')
    reply[#reply + 1] = id
    reply[#reply + 1] = -1
    reply[#reply + 1] = get(id) or ''
  end
end
