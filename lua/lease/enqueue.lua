-- Fast path of acquire with one level and no room: the caller joins the queue or is refused.
-- Reads ARGV, fields and the scope's numbers. Sets reply if it handled the operation; otherwise the
-- operations do, with the same outcome.
if operation == 'acquire' and #ARGV == 12 and fields.scope and not fields[ARGV[2]] and
  earliest_end + 0 > now and evicted_until + 0 <= now then
  local id, patience, max_waiters, node = ARGV[2], ARGV[3] + 0, ARGV[4] + 0, ARGV[10]
  local used = (fields['u:' .. node] or 0) + 0
  if used + ARGV[11] > ARGV[12] + 0 then
    local status, position, from = -1, 0, '[' .. node .. ' '
    local waiters = max_waiters > 0 and call('ZLEXCOUNT', KEYS[3], from, '(' .. node .. '!')
    if waiters and waiters >= max_waiters then
      status = -2
    elseif waiters then
      ticket = string.format('%016.0f', math.max(ticket + 1, now))
      local place = ARGV[5] .. ticket
      fields[id], changed[id] = place .. ' 0 0 ' .. table.concat(ARGV, ' ', 6), true
      place = node .. ' ' .. place .. ' ' .. id
      call('ZADD', KEYS[3], '0', place)
      put(4, now + patience, id)
      touched[3] = touched[3] or waiters == 0
      status = 0
      if waiters > 0 then
        position = call('ZLEXCOUNT', KEYS[3], from, '(' .. place)
      end
    end
    local first = position == 0 and call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')[2]
    local wait = first and math.max(0, first - now) or -1
    reply = {status, token + 0, position, wait, hold, 0, used}
  end
end
