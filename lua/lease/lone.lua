-- The lone holder, which most callers are: the scope held and queued nobody, and all that is known of
-- it is one field. Its release deletes that. Whatever else happens unfolds it first. Its keys live as
-- if latest_end were set by its grant.
if operation == 'acquire' and not scope then
  local fits, reply = true, {1, now, 0, -1, 0, ARGV[7] + 0, nil, nil}
  for i = 10, #ARGV, 3 do
    reply[(i + 11) / 3], fits = ARGV[i + 1] + 0, fits and ARGV[i + 1] - ARGV[i + 2] <= 0
  end
  if fits then
    call('HSET', KEYS[2], 'scope', ' ' .. id .. ' ' .. text(now) .. ' ' .. table.concat(ARGV, ' ', 6))
    call('PEXPIRE', KEYS[2], math.floor(ARGV[7] / 1000) + 90000 + margin)
    return reply
  end
end
local lone, granted, request, lease = string.match(scope or '', '^ (%S+) (%S+) (%S+ (%S+) .*)$')
if lone then
  local ends = granted + lease
  if operation == 'release' and id == lone and #ARGV == 2 and granted + 0 <= now and now < ends then
    call('DEL', KEYS[2])
    return {1}
  end
  local milliseconds = math.floor(ends / 1000)
  local set = {'HSET', KEYS[2], 'scope', nil, lone, '- ' .. granted .. ' ' .. granted .. ' ' .. request}
  set[4] = granted .. ',0,' .. granted .. ',0,1,' .. milliseconds .. ',' .. milliseconds + 30000
  local levels = string.match(request, '^%S+ %S+ %S+ %S+( .*)$')
  for node, weight in string.gmatch(levels, ' (%S+) (%S+) %S+') do
    set[#set + 1], set[#set + 2] = 'u:' .. node, weight
  end
  call(unpack(set)) -- first, because Redis rejects it when its memory is full
  call('DEL', KEYS[1], KEYS[3], KEYS[4], KEYS[5]) -- Redis may have lost the hash of an earlier scope
  call('ZADD', KEYS[1], text(ends), lone)
  call('PEXPIRE', KEYS[1], math.floor(math.max(0, ends - now) / 1000) + 90000 + margin)
  values = call('HMGET', KEYS[2], unpack(names))
  scope = values[1]
end
