-- Decides a request and takes a slot of a semaphore, both or neither.
--
-- KEYS   the keys of the charges; then the five keys of the semaphore, as in lua/lease.lua
-- ARGV   as in lua/decide.lua, for one request, a "peek"; as in lua/lease.lua, for an "acquire"
--        that does not wait; the number of arguments for lua/lease.lua
-- Reply  as in lua/decide.lua; then, unless a charge was denied or the limits do not hold now, as
--        in lua/lease.lua. Without a slot nothing is charged.

local function slice(list, from, to)
  local part = {}
  for i = from, to do
    part[i - from + 1] = list[i]
  end
  return part
end

local split = #ARGV - 1 - ARGV[#ARGV]
local keys, argv = slice(KEYS, 1, #KEYS - 5), slice(ARGV, 1, split)
local reply = decide(keys, argv, now, margin)
if reply[1] < 0 then
  return reply
end
local at = argv[1] + 0
for i = 1, argv[at + 2] + 0 do
  local limit = argv[at + 4 + (i - 1) * 4 + 1]
  if math.floor(reply[1] / 2 ^ (i - 1)) % 2 == 1 and argv[limit + 1] ~= '1' then
    return reply
  end
end
local slot = lease(slice(KEYS, #KEYS - 4, #KEYS), slice(ARGV, split + 1, #ARGV - 1), now, margin)
if slot[1] == 1 then
  argv[at] = 'decide'
  reply = decide(keys, argv, now, margin)
end
for i = 1, #slot do
  reply[#reply + 1] = slot[i]
end
return reply
