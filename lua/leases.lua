-- Runs operations on leases, one after the other.
--
-- KEYS   for each operation: the keys of its scope, as in lua/lease.lua
-- ARGV   for each operation: the number of its arguments, its arguments as in lua/lease.lua
-- Reply  for each operation: the number of values of its reply, its reply as in lua/lease.lua; an
--        acquire at a scope that nobody else uses has one value, the fencing token. -1 in place of
--        both if one of several operations failed: alone, it tells its error

local reply, n, at, made = {}, 0, 1, {}
for key = 1, #KEYS, 5 do
  local from, last, ok, own = at + 1, at + ARGV[at], true, nil
  if #KEYS == 5 then
    own = lone(KEYS, 1, ARGV, 2, last, now, margin, made)
      or lease(KEYS, {unpack(ARGV, 2, last)}, now, margin)
  else
    ok, own = pcall(lone, KEYS, key, ARGV, from, last, now, margin, made)
    if not own then
      local keys, argv = {unpack(KEYS, key, key + 4)}, {unpack(ARGV, from, last)}
      ok, own = pcall(lease, keys, argv, now, margin)
    end
  end
  if not ok then
    n = n + 1
    reply[n] = -1
  elseif type(own) == 'number' then
    reply[n + 1], reply[n + 2], n = 1, own, n + 2
  else
    n = n + 1
    reply[n] = #own
    for i = 1, #own do
      reply[n + i] = own[i]
    end
    n = n + #own
  end
  at = last + 1
end
return reply
