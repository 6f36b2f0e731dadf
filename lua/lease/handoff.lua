-- Fast path of release: one holder leaves and the first waiter takes its place. It handles scopes
-- without inner levels in which no second waiter fits; a waiting caller's latency depends on it.
-- Reads ARGV, fields and the scope's numbers. Sets reply if it handled the operation; otherwise the
-- operations do, with the same outcome.
if operation == 'release' and #ARGV == 2 and nodes == 0 and earliest_end + 0 > now then
  local id = ARGV[2]
  local old_token, granted, node, weight =
    string.match(fields[id] or '', '^%S+ (%S+) (%S+) %S+ %S+ %S+ %S+ (%S+) (%S+) %S+$')
  local queue = old_token and old_token ~= '0' and
    call('ZRANGEBYLEX', KEYS[3], '[' .. node .. ' ', '(' .. node .. '!', 'LIMIT', '0', '2')
  if queue and queue[1] then
    local use, heir = 'u:' .. node, string.sub(queue[1], #node + 20)
    local second = string.sub(queue[2] or queue[1], #node + 20)
    local values = call('HMGET', KEYS[2], use, heir, second)
    local ticket, request, lease, channel, heir_weight, limit =
      string.match(values[2], '^(%S+) %S+ %S+ (%S+ (%S+) (%S+) %S+ %S+ (%S+) (%S+))$')
    local used = values[1] - weight + (heir_weight or 0)
    local second_weight, second_limit =
      string.match(queue[2] and values[3] or '', '^.* (%S+) (%S+)$')
    if ticket and used <= limit + 0 and
      not (second_weight and used + second_weight <= second_limit + 0) then
      lease = math.min(lease + 0, 5000000)
      put(1, now + lease, heir, true)
      if call('ZREM', KEYS[1], id) == 0 then
        touched[1] = true
      end
      call('ZREM', KEYS[3], queue[1])
      call('ZREM', KEYS[4], heir)
      fields[id], changed[id] = false, true
      fields[heir] = ticket .. ' ' .. next_token() .. ' ' .. at .. ' ' .. request
      changed[heir] = true
      fields[use], changed[use] = text(used), true
      record_hold(granted)
      local publish = string.find(channel, '{', 1, true) and 'SPUBLISH' or 'PUBLISH'
      local message = string.format('%s %s %.0f %.0f', heir, token, lease, used)
      redis.pcall(publish, channel, message)
      reply = {1}
    end
  end
end
