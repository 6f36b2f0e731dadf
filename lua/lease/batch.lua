-- Runs operations on leases, one after the other.
--
-- KEYS   for each operation: the keys of its scope, as in lease.lua
-- ARGV   as in lease.lua; of several operations: the number of arguments of each before them
-- Reply  as in lease.lua, but an acquire at a scope that nobody else uses has one value, the
--        fencing token; of several operations: the number of values of each before them, or only -1
--        for one that failed: alone, it tells its error

local stamp = text(now)
if #KEYS == 5 then
  local own = lone(KEYS, 1, ARGV, 1, #ARGV, now, stamp)
  return type(own) == 'number' and {own} or own or lease(KEYS, ARGV, now)
end

local reply, n, at = {}, 0, 0
local unfolded = {} -- the scopes whose records are a hash
for key = 1, #KEYS, 5 do
  local from, last = at + 2, at + 1 + ARGV[at + 1]
  local ok, own = true, nil
  if not unfolded[KEYS[key]] then
    ok, own = pcall(lone, KEYS, key, ARGV, from, last, now, stamp)
  end
  if not own then
    local keys, argv, folded = {unpack(KEYS, key, key + 4)}, {unpack(ARGV, from, last)}, nil
    ok, own, folded = pcall(lease, keys, argv, now)
    unfolded[KEYS[key]] = not folded
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
  at = last
end
return reply
