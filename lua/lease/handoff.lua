-- The step of a busy queue that a waiting caller's latency depends on: one holder leaves where the first
-- waiter, but no second one, fits. Sets reply if it handled the operation; otherwise the operations do,
-- with the same outcome. They take Redis 65 us for an acquire that waits and the release that grants
-- it, and this step 52 us.
if operation == 'release' and #ARGV == 2 and not named and scope and not expired and evicted_until <= now and
  places > 0 and nodes == 0 then
  local number, granted, node, weight =
    string.match(fields[id] or '', '^%S+ (%S+) (%S+) %S+ %S+ %S+ %S+ (%S+) (%S+) %S+$')
  local queue = number and number ~= '0' and
    call('ZRANGEBYLEX', KEYS[3], '[' .. node .. ' ', '(' .. node .. '!', 'LIMIT', '0', '2')
  if queue and queue[1] then
    local use, heir = 'u:' .. node, string.sub(queue[1], #node + 19)
    local newest = 'w:' .. node
    local values =
      call('HMGET', KEYS[2], use, heir, newest, string.sub(queue[2] or queue[1], #node + 19))
    local place, request, lease, channel, heir_weight =
      string.match(values[2], '^(%S+) %S+ %S+ (%S+ (%S+) (%S+) %S+ %S+ (%S+) %S+)$')
    local limit, waiters = string.match(values[3] or '', '^(%d+),(%d+)$')
    local used = values[1] - weight + (heir_weight or 0)
    local second_weight = string.match(queue[2] and values[4] or '', '^.* (%S+) %S+$')
    if place and limit and used <= math.max(limit + 0, heir_weight + 0) and
      not (second_weight and used + second_weight <= math.max(limit + 0, second_weight + 0)) then
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
      waiters = waiters - 1
      fields[newest] = waiters > 0 and string.format('%s,%d', limit, waiters)
      changed[newest] = true
      fields[use], changed[use] = string.format('%.0f', used), true
      hold = mean_hold(hold, now - granted)
      publish(channel, string.format('%s %s %.0f %.0f', heir, token, lease, used))
      reply = {0}
    end
  end
end
