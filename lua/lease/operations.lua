-- The operations, built on the functions of scope.lua. Each sets reply and marks what it wrote in
-- changed, touched and busy; lease.lua writes it at the end.
reply = {}

if operation == 'acquire' then
  local id, patience, max_waiters = ARGV[2], ARGV[3] + 0, ARGV[4] + 0
  local wanted = {
    ticket = '-', token = '0', granted = '0', request = table.concat(ARGV, ' ', 6),
    longest = ARGV[6] + 0, lease = ARGV[7] + 0, channel = ARGV[8], levels = {},
  }
  for i = 10, #ARGV, 3 do
    local level = {node = ARGV[i], weight = ARGV[i + 1] + 0, limit = ARGV[i + 2] + 0}
    wanted.levels[#wanted.levels + 1] = level
  end
  local root, leaf = wanted.levels[1].node, wanted.levels[#wanted.levels].node
  local status, left, r = 0, 0, load_record(id)
  if r and r.token ~= '0' then
    left = extend(id, r, r.lease) - now
  elseif r then
    wanted.ticket = r.ticket
    r = wanted
    save_record(id, r)
    put(4, now + patience, id)
    touched[3], touched[5] = true, touched[5] or #r.levels > 1
    refresh(r.levels)
    promote(root, id)
  elseif is_evicted(id) then
    status = -3
  else
    r = wanted
    local fits, first = true, true
    for i = 1, #r.levels do
      local node = r.levels[i].node
      fits = fits and has_room(r, node)
      first = first and fits and not head(node)
    end
    if fits and first then
      grant(id, r, r.lease)
    elseif max_waiters == 0 and not fits then
      status = -1
    elseif max_waiters > 0 and
      call('ZLEXCOUNT', KEYS[3], '[' .. leaf .. ' ', '(' .. leaf .. '!') >= max_waiters then
      status = -2
    else
      -- The caller queues first: granting then goes by tickets alone, whether or not it may wait.
      ticket = string.format('%016.0f', math.max(ticket + 1, now))
      r.ticket = ARGV[5] .. ticket
      save_record(id, r)
      insert(3, place(id, r))
      put(4, now + patience, id)
      touched[5] = touched[5] or #r.levels > 1
      refresh(r.levels)
      if fits or #r.levels > 1 then -- at one full level the new waiter makes no other ready
        promote(root, id)
      end
      if max_waiters == 0 and r.token == '0' then
        drop(id)
        status = -1
      end
    end
  end
  local position = 0
  if status == 0 and r.token ~= '0' then
    status = 1
    left = left > 0 and left or r.lease
  elseif status == 0 then
    position = call('ZLEXCOUNT', KEYS[3], '[' .. leaf .. ' ', '(' .. place(id, r))
  end
  local first = status ~= 1 and position == 0 and
    call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')[2]
  local wait = first and math.max(0, first - now) or -1
  reply = {status, (status == 1 and r.token or token) + 0, position, wait, hold, left}
  for i = 1, #wanted.levels do
    reply[#reply + 1] = used(wanted.levels[i].node)
  end
elseif operation == 'renew' then
  for i = 3, #ARGV do
    local id = ARGV[i]
    reply[i - 2] = 0
    local r = load_record(id)
    if r and r.token ~= '0' then
      reply[i - 2] = math.max(1, extend(id, r, ARGV[2]) - now)
    elseif is_evicted(id) then
      reply[i - 2] = -1
    end
  end
elseif operation == 'release' or operation == 'force' then
  for i = 2, #ARGV do
    local id = ARGV[i]
    local ends = operation == 'force' and
      tonumber(call('ZSCORE', KEYS[1], id) or call('ZSCORE', KEYS[4], id))
    local was, r = drop(id)
    reply[i - 1] = was
    if was == 1 and operation == 'release' then
      record_hold(r.granted)
    elseif was > 0 and operation == 'force' then
      -- The mark outlives the lease by its length, for a holder that could not renew meanwhile.
      ends = ends + r.lease
      put(4, ends, '!' .. id)
      evicted_until = text(math.max(ends, evicted_until + 0))
      publish(r.channel, '!' .. id)
    elseif was == 0 and operation == 'release' and is_evicted(id) then
      call('ZREM', KEYS[4], '!' .. id)
      busy = false
    end
  end
  promote_dropped()
elseif operation == 'list' then
  reply[1] = now
  local holders = call('ZRANGE', KEYS[1], '0', '-1', 'WITHSCORES')
  for i = 1, #holders, 2 do
    reply[#reply + 1] = holders[i]
    reply[#reply + 1] = math.max(0, holders[i + 1] - now)
    reply[#reply + 1] = get(holders[i]) or ''
  end
  for _, member in ipairs(call('ZRANGE', KEYS[3], '0', '-1')) do
    local id = string.match(member, '^.* (%S+)$')
    reply[#reply + 1] = id
    reply[#reply + 1] = -1
    reply[#reply + 1] = get(id) or ''
  end
end
