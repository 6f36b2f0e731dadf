-- The operations, by the functions of scope.lua. Each sets reply, and leaves what changed in changed, touched and busy, to be
-- written at the end.
reply = {}

if operation == 'acquire' then
  local id, patience, most = ARGV[2], ARGV[3] + 0, ARGV[4] + 0
  local asked = {
    ticket = '-', token = '0', granted = '0', asked = table.concat(ARGV, ' ', 6), longest = ARGV[6] + 0, lease = ARGV[7] + 0,
    channel = ARGV[8], levels = {},
  }
  for i = 10, #ARGV, 3 do
    asked.levels[#asked.levels + 1] = {node = ARGV[i], weight = ARGV[i + 1] + 0, limit = ARGV[i + 2] + 0}
  end
  local root, leaf = asked.levels[1].node, asked.levels[#asked.levels].node
  local status, left, r = 0, 0, load(id)
  if r and r.token ~= '0' then
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
      ticket = string.format('%016.0f', math.max(ticket + 1, now))
      r.ticket = ARGV[5] .. ticket
      save(id, r)
      enter(3, place(id, r))
      put(4, now + patience, id)
      touched[5] = touched[5] or #r.levels > 1
      refresh(r.levels)
      if fits or #r.levels > 1 then -- else nobody is let in by who came
        promote(root, id)
      end
      if most == 0 and r.token == '0' then
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
  local first = status ~= 1 and position == 0 and call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')[2]
  reply = {status, (status == 1 and r.token or token) + 0, position, first and math.max(0, first - now) or -1, hold, left}
  for i = 1, #asked.levels do
    reply[#reply + 1] = used(asked.levels[i].node)
  end
elseif operation == 'renew' then
  for i = 3, #ARGV do
    local id = ARGV[i]
    reply[i - 2] = 0
    local r = load(id)
    if r and r.token ~= '0' then
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
      held_since(r.granted)
    elseif was > 0 and operation == 'force' then
      -- It is known for a lease longer than it would have lived, for whoever could not ask before.
      ends = ends + r.lease
      put(4, ends, '!' .. id)
      last_evicted = text(math.max(ends, last_evicted + 0))
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
    local id = string.match(member, '^.* (%S+)$')
    reply[#reply + 1] = id
    reply[#reply + 1] = -1
    reply[#reply + 1] = get(id) or ''
  end
end

