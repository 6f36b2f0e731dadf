-- The lone holder, which most callers are: nobody else holds or waits in the scope, and all that is
-- known of it is one text at the key of the records, "granted after left id request": when it was
-- granted, how long after that it was renewed, for how long from then on, and what it asked for. The
-- time of the grant is the fencing token, and has 16 digits. Whatever is not its own renewal or
-- release unfolds the text into the keys of lua/lease/lease.lua.
--
-- After the last release the text is "token 0 0 - 0 1 - - - 1 1", a holder whose lease has ended. It
-- lives until five minutes after the lease at least, so that tokens rise even if Redis's clock steps back.
--
-- KEYS, ARGV  as in lua/lease/lease.lua, from key and from at to last
-- stamp       the text of now
-- Returns     the reply, or its one value. nil if lua/lease/lease.lua decides

local function lone(KEYS, key, ARGV, at, last, now, stamp)
  local operation, records = ARGV[at], KEYS[key + 1]
  local value = call('MGET', records)[1] -- unlike GET, it finds nothing in a hash and does not fail
  if operation == 'acquire' then
    local token = take(records, value, stamp, ARGV[at + 4], ARGV[last])
    if token ~= 0 then
      return token + 0
    end
  end
  for i = at + 1, operation == 'release' and last or 0 do
    if leave(records, value, ' ' .. ARGV[i] .. ' ') == 1 then
      return 1
    end
  end
  local granted, after, left, id, request = string.match(value or '', '^(%d+) (%d+) (%d+) (%S+) (.*)$')
  if not granted then
    return nil
  end
  if left == '0' and operation == 'release' then
    return 1
  elseif left == '0' and operation ~= 'acquire' then
    local reply = {operation == 'list' and math.max(now, granted + 0) or nil}
    for i = at + (operation == 'renew' and 2 or 1), last do
      reply[#reply + 1] = 0
    end
    return reply
  end
  local seen = granted + after
  local ends = seen + left
  if operation == 'renew' and last == at + 2 and id == ARGV[last] and seen <= now and now < ends then
    local longest, wanted = string.match(request, '^%S+') + 0, now + ARGV[at + 1]
    if longest > 0 then
      wanted = math.min(wanted, granted + longest)
    end
    left = math.max(wanted, ends) - now
    local ttl = math.floor(left / 1000) + token_lives
    call('SET', records, -- Redis 7.2 prints a TTL of 100000000 with an exponent
      string.format('%s %.0f %.0f %s %s', granted, now - granted, left, id, request), 'PX', string.format('%.0f', ttl))
    return left
  end
  local milliseconds = math.floor(ends / 1000)
  local set = {'HSET', records, 'scope', nil, id, '- ' .. granted .. ' ' .. granted .. ' ' .. request}
  set[4] = text(seen) .. ',0,' .. granted .. ',0,1,' .. milliseconds .. ',' .. milliseconds + 30000
  local levels = string.match(request, '^%S+ %S+ %S+ %S+( .*)$')
  for node, weight in string.gmatch(levels, ' (%S+) (%S+) %S+') do
    set[#set + 1], set[#set + 2] = 'u:' .. node, weight
  end
  local name = string.match(id, '^(.+)/')
  if name then
    set[#set + 1], set[#set + 2] = 'i:' .. string.match(levels, '(%S+) %S+ %S+$') .. '/' .. name, id
  end
  local ttl = string.format('%.0f', math.max(0, milliseconds - math.floor(now / 1000)) + token_lives)
  call('HSET', KEYS[key + 4], 'since', '') -- what Redis rejects, it rejects before the holder is lost
  call('DEL', KEYS[key], KEYS[key + 2], KEYS[key + 3], KEYS[key + 4]) -- Redis may have lost a hash
  call('ZADD', KEYS[key], text(ends), id)
  call('PEXPIRE', KEYS[key], ttl)
  call('DEL', records)
  call(unpack(set))
  call('PEXPIRE', records, ttl)
end
