-- The step that others wait for, before anything is made that it does not need: one holder gives up, and the first who waits
-- takes over. It is done here where the scope has no levels below it and there is room for no other, else by the operations,
-- whose outcome is the same. It sets reply if it is done.
if operation == 'release' and #ARGV == 2 and nodes == 0 and next_end + 0 > now then
  local id = ARGV[2]
  local before, granted, node, weight =
    string.match(fields[id] or '', '^%S+ (%S+) (%S+) %S+ %S+ %S+ %S+ (%S+) (%S+) %S+$')
  local queue = before and before ~= '0' and
    call('ZRANGEBYLEX', KEYS[3], '[' .. node .. ' ', '(' .. node .. '!', 'LIMIT', '0', '2')
  if queue and queue[1] then
    local use, heir = 'u:' .. node, string.sub(queue[1], #node + 20)
    local values = call('HMGET', KEYS[2], use, heir, string.sub(queue[2] or queue[1], #node + 20))
    local ticket, asked, lease, channel, more, limit =
      string.match(values[2], '^(%S+) %S+ %S+ (%S+ (%S+) (%S+) %S+ %S+ (%S+) (%S+))$')
    local used = values[1] - weight + (more or 0)
    local other, most = string.match(queue[2] and values[3] or '', '^.* (%S+) (%S+)$')
    if ticket and used <= limit + 0 and not (other and used + other <= most + 0) then
      lease = math.min(lease + 0, 5000000)
      put(1, now + lease, heir, true)
      if call('ZREM', KEYS[1], id) == 0 then
        touched[1] = true
      end
      call('ZREM', KEYS[3], queue[1])
      call('ZREM', KEYS[4], heir)
      fields[id], changed[id] = false, true
      fields[heir], changed[heir] = ticket .. ' ' .. next_token() .. ' ' .. at .. ' ' .. asked, true
      fields[use], changed[use] = used, true
      held_since(granted)
      local tells = string.find(channel, '{', 1, true) and 'SPUBLISH' or 'PUBLISH'
      redis.pcall(tells, channel, string.format('%s %s %.0f %.0f', heir, token, lease, used))
      reply = {1}
    end
  end
end
