-- The short form of an acquire and of a release, for scopes with a lone holder or none. It takes one
-- key where lua/lease/batch.lua takes five. Redis runs both in 13 us; this one has fewer words to read,
-- which counts in batches of many callers.
--
-- KEYS   for each acquire, then for each release: the records of its scope, as in lua/lease/lone.lua
-- ARGV   the number of acquires; for each of them the milliseconds for which Redis keeps the lease, and
--        " 0 lease id request"; for each release the id
-- Reply  the fencing token of the slots that are taken; for each acquire and each release 1, or 0 if
--        lua/lease/batch.lua is to decide

local call, acquires, stamp = redis.call, ARGV[1] + 0, text(now)
local reply = {now}
for i = 1, acquires do
  local taken = call('SET', KEYS[i], stamp .. ARGV[2 * i + 1], 'NX', 'PX', ARGV[2 * i])
  reply[i + 1] = taken and 1 or 0
end
if #KEYS > acquires then
  local values, gone = call('MGET', unpack(KEYS, acquires + 1)), {}
  for i = acquires + 1, #KEYS do
    local granted, after, left, id =
      string.match(values[i - acquires] or '', '^(%d+) (%d+) (%d+) (%S+) ')
    local held = id == ARGV[1 + acquires + i]
    if held then
      local seen = granted + after
      held = seen <= now and now < seen + left -- its clock has not stepped back
    end
    if held then
      gone[#gone + 1] = KEYS[i]
    end
    reply[i + 1] = held and 1 or 0
  end
  if #gone > 0 then
    call('DEL', unpack(gone))
  end
end
return reply
