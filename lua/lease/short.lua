-- The short form of an acquire and of a release, for scopes with a lone holder or none. It takes one
-- key where lua/lease/batch.lua takes five. Redis runs both in 13 us; this one has fewer words to read,
-- which counts in batches of many callers.
--
-- The token of a scope that nobody holds is kept, as in lua/lease/lone.lua.
--
-- KEYS   for each acquire, then for each release: the records of its scope, as in lua/lease/lone.lua
-- ARGV   for each acquire the milliseconds for which Redis keeps the lease, and " 0 lease id request";
--        for each release the id
-- Reply  for each acquire the fencing token, for each release 1; 0 if lua/lease/batch.lua is to decide

local call, acquires = redis.call, #ARGV - #KEYS
-- The time as lua/lease/text.lua prints it. A call of that takes 2 % of a lone acquire and its release.
local low = now % 10000000
local stamp = acquires > 0 and string.format('%d%07d', (now - low) / 10000000, low)
local reply, values = {}, call('MGET', unpack(KEYS))
local taken = acquires > 1 and {} -- by key, where nobody held
for i = 1, #KEYS do
  local key, value = KEYS[i], values[i]
  reply[i] = 0
  if i > acquires then
    local granted, after, left, at = string.match(value or '', '^(%d+) (%d+) (%d+)() ')
    local id = ' ' .. ARGV[acquires + i] .. ' '
    if at and string.find(value, id, at, true) == at then
      local seen = granted + after
      if seen <= now and now < seen + left then -- its clock has not stepped back
        local last = granted .. vacant
        if redis.pcall('SET', key, last, 'KEEPTTL').err then -- no memory, except behind a DEL
          call('DEL', key)
          redis.pcall('SET', key, last, 'PX', token_lives)
        end
        reply[i] = 1
      end
    end
  elseif not value then -- the key may hold a hash
    reply[i] = call('SET', key, stamp .. ARGV[2 * i], 'NX', 'PX', ARGV[2 * i - 1]) and now or 0
  else
    local token = string.match(value, '^(%d+) 0 0 ')
    if token and token + 0 < now and not (taken and taken[key]) then
      call('SET', key, stamp .. ARGV[2 * i], 'PX', ARGV[2 * i - 1])
      reply[i] = now
      if taken then
        taken[key] = true
      end
    end
  end
end
return reply
