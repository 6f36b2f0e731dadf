-- The short form of an acquire and of a release, for scopes with a lone holder or none. It takes one
-- key where lua/lease/batch.lua takes five.
--
-- What Redis keeps of such a scope is in lua/lease/lone.lua.
--
-- KEYS   for each acquire, then for each release: the records of its scope, as in lua/lease/lone.lua
-- ARGV   for each acquire the milliseconds for which Redis keeps the lease, and " 0 lease id request";
--        for each release the id
-- Reply  for each acquire the fencing token, for each release 1; 0 if lua/lease/batch.lua is to decide.
--        For one key this is a number and no list, which costs as much as a command.

local call, count, acquires = redis.call, #KEYS, #ARGV - #KEYS
local values, reply = count > 1 and call('MGET', unpack(KEYS)), count > 1 and {}
local low = now % 10000000
local stamp = acquires > 0 and string.format('%d%07d', (now - low) / 10000000, low) -- as lua/lease/text.lua
local taken = acquires > 1 and {} -- by key, where nobody held
for i = 1, count do
  local key, value, done = KEYS[i], nil, 0
  if values then
    value = values[i]
  else
    value = redis.pcall('GET', key)
    if type(value) == 'table' then -- the key holds a hash, as it may where MGET finds nothing
      value = false
    end
  end
  if i > acquires then
    local granted, after, left, at = string.match(value or '', '^(%d+) (%d+) (%d+)() ')
    local id = ' ' .. ARGV[acquires + i] .. ' '
    local seen = at and string.find(value, id, at, true) == at and granted + after
    if seen and seen <= now and now < seen + left then -- its clock has not stepped back
      local last = granted .. vacant
      if redis.pcall('SET', key, last, 'KEEPTTL').err then -- no memory, except behind a DEL
        call('DEL', key)
        redis.pcall('SET', key, last, 'PX', token_lives)
      end
      done = 1
    end
  elseif not value then
    done = call('SET', key, stamp .. ARGV[2 * i], 'NX', 'PX', ARGV[2 * i - 1]) and now or 0
  else
    local token = string.match(value, '^(%d+) 0 0 ')
    if token and token + 0 < now and not (taken and taken[key]) then
      call('SET', key, stamp .. ARGV[2 * i], 'PX', ARGV[2 * i - 1])
      done = now
      if taken then
        taken[key] = true
      end
    end
  end
  if count == 1 then
    return done
  end
  reply[i] = done
end
return reply
