-- The two steps of a busy queue, which a waiting caller's latency depends on: a caller with one level
-- finds no room, and one holder leaves where the first waiter, but no second one, fits. Sets reply if
-- it handled the operation; otherwise the operations do, with the same outcome.
local plain = fields.scope and not expired and evicted_until <= now
local used = fields['u:' .. (ARGV[10] or '')] or 0
if operation == 'acquire' and plain and #ARGV == 12 and not fields[ARGV[2]] and ARGV[4] ~= '0' and
  used + ARGV[11] > ARGV[12] + 0 then
  local id, node, position = ARGV[2], ARGV[10], 0
  local from = '[' .. node .. ' '
  local waiters = places > 0 and call('ZLEXCOUNT', KEYS[3], from, '(' .. node .. '!') or 0
  if waiters < ARGV[4] + 0 then
    ticket = string.format('%016.0f', math.max(ticket + 1, now))
    local place = ARGV[5] .. ticket
    fields[id], changed[id] = place .. ' 0 0 ' .. table.concat(ARGV, ' ', 6), true
    place = node .. ' ' .. place .. ' ' .. id
    call('ZADD', KEYS[3], '0', place)
    places = places + put(4, now + ARGV[3], id)
    touched[3] = touched[3] or waiters == 0
    position = waiters > 0 and call('ZLEXCOUNT', KEYS[3], from, '(' .. place) or 0
  end
  local first = position == 0 and call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')[2]
  local wait = first and math.max(0, first - now) or -1
  local status = changed[id] and 0 or -2
  reply = {status, token + 0, position, wait, hold, 0, used + 0}
elseif operation == 'release' and plain and #ARGV == 2 and places > 0 and nodes == 0 then
  local id = ARGV[2]
  local number, granted, node, weight =
    string.match(fields[id] or '', '^%S+ (%S+) (%S+) %S+ %S+ %S+ %S+ (%S+) (%S+) %S+$')
  local queue = number and number ~= '0' and
    call('ZRANGEBYLEX', KEYS[3], '[' .. node .. ' ', '(' .. node .. '!', 'LIMIT', '0', '2')
  if queue and queue[1] then
    local use, heir = 'u:' .. node, string.sub(queue[1], #node + 20)
    local values = call('HMGET', KEYS[2], use, heir, string.sub(queue[2] or queue[1], #node + 20))
    local place, request, lease, channel, heir_weight, limit =
      string.match(values[2], '^(%S+) %S+ %S+ (%S+ (%S+) (%S+) %S+ %S+ (%S+) (%S+))$')
    local used = values[1] - weight + (heir_weight or 0)
    local second_weight, second_limit =
      string.match(queue[2] and values[3] or '', '^.* (%S+) (%S+)$')
    if place and used <= limit + 0 and
      not (second_weight and used + second_weight <= second_limit + 0) then
      lease = math.min(lease + 0, 5000000)
      put(1, now + lease, heir) -- first, so that the key does not vanish
      if call('ZREM', KEYS[1], id) == 0 then
        touched[1] = true -- Redis has lost the key
      end
      call('ZREM', KEYS[3], queue[1])
      places = places - call('ZREM', KEYS[4], heir)
      fields[id], changed[id] = false, true
      token = now > token + 0 and at or text(token + 1)
      fields[heir], changed[heir] = place .. ' ' .. token .. ' ' .. at .. ' ' .. request, true
      fields[use], changed[use] = string.format('%.0f', used), true
      note_hold(granted)
      local publish = string.find(channel, '{', 1, true) and 'SPUBLISH' or 'PUBLISH'
      redis.pcall(publish, channel, string.format('%s %s %.0f %.0f', heir, token, lease, used))
      reply = {1}
    end
  end
end
