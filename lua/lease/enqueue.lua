-- The other step of a hand-off in the same way: one comes who finds no room at the only level, and waits or goes away. It sets
-- reply if that is all there is to do.
if operation == 'acquire' and #ARGV == 12 and fields.scope and not fields[ARGV[2]] and next_end + 0 > now and
  last_evicted + 0 <= now then
  local id, patience, most, node = ARGV[2], ARGV[3] + 0, ARGV[4] + 0, ARGV[10]
  local used = (fields['u:' .. node] or 0) + 0
  if used + ARGV[11] > ARGV[12] + 0 then
    local status, position, from = -1, 0, '[' .. node .. ' '
    local before = most > 0 and call('ZLEXCOUNT', KEYS[3], from, '(' .. node .. '!')
    if before and before >= most then
      status = -2
    elseif before then
      ticket = string.format('%016.0f', math.max(ticket + 1, now))
      local place = ARGV[5] .. ticket
      fields[id], changed[id] = place .. ' 0 0 ' .. table.concat(ARGV, ' ', 6), true
      place = node .. ' ' .. place .. ' ' .. id
      call('ZADD', KEYS[3], '0', place)
      put(4, now + patience, id)
      touched[3] = touched[3] or before == 0
      status, position = 0, before > 0 and call('ZLEXCOUNT', KEYS[3], from, '(' .. place) or 0
    end
    local first = position == 0 and call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')[2]
    reply = {status, token + 0, position, first and math.max(0, first - now) or -1, hold, 0, used}
  end
end
