reply[1] = now
local held = call('ZRANGE', KEYS[1], '0', '-1', 'WITHSCORES')
for i = 1, #held, 2 do
  reply[#reply + 1] = held[i]
  reply[#reply + 1] = math.max(0, held[i + 1] - now)
  reply[#reply + 1] = get(held[i]) or ''
end
for _, member in ipairs(call('ZRANGEBYLEX', KEYS[3], '-', '(~')) do
  local id = string.match(member, '^.* (%S+)$')
  reply[#reply + 1] = id
  reply[#reply + 1] = -1
  reply[#reply + 1] = get(id) or ''
end
