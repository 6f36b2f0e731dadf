-- Reads all keys with one command if asked, and decides the short form of the arguments where every
-- key holds a plain arrival time. lua/decide.lua decides everything else. This is a part of its own
-- because a call clears all variables of a function, so few variables make a fast call.
--
-- KEYS, ARGV, reply  as in lua/decide.lua
-- Sets               values to all values, if it read them; short to whether ARGV has the short
--                    form
local KEYS, ARGV = KEYS, ARGV
local grace = 4194304 -- 2^22 microseconds: keys outlive their state, so that few charges set a TTL
local reach, values = -ARGV[1], nil
local short = reach > 0
if #KEYS > 1 and (short or ARGV[4] == '1') then
  values = redis.pcall('MGET', unpack(KEYS))
  if values.err then -- the user may not use MGET; decide.lua reads the keys one by one
    values = {false}
  end
end
if short then
  local sub, capacity, cost, count = string.sub, ARGV[2] + 0, ARGV[3] + 0, #KEYS
  local last, value, before, arrivals = now + capacity, nil, nil, values and {0}
  for key = 1, count do
    value = values and values[key] or redis.call('GET', KEYS[key])
    before = 0
    if value then
      before = #value == 18 and tonumber(sub(value, 3))
    end
    if not before or before > last or before < 0 or before % 1 ~= 0 then
      last = false
      break
    end
    if arrivals then
      values[key], arrivals[key] = value, before
    end
  end
  if last then
    local reply, n, lasts, lasting, moves, moving = {0}, 0, nil, nil, nil, nil
    for key = 1, count do
      if arrivals then
        value, before = values[key], arrivals[key]
      end
      local arrival, most = before, (ARGV[key + 3] or 1) + 0
      if arrival < now then
        arrival = now
      end
      local backlog, fit = arrival - now, most
      if arrival + most * cost > last then
        fit = math.floor((last - arrival) / cost)
        if arrival + fit * cost > last then -- the quotient was rounded up
          fit = fit - 1
        end
      end
      arrival = arrival + fit * cost
      if most == 1 then
        n = n + 1
        reply[n] = fit == 1 and 2 + backlog or -2 - backlog
      else
        reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = fit, backlog, 0, fit > 0 and arrival or 0
        n = n + 4
      end
      if fit > 0 then
        local move = arrival - before
        if move ~= moves and value then
          moves, moving = move, string.format('%d', move)
        end
        if not value or move > arrival % grace
          or redis.pcall('INCRBY', KEYS[key], moving) ~= reach * 10000000000000000 + arrival then
          -- The key is new, needs a new TTL or has another reach. Or Redis rejected INCRBY: the
          -- user may not use it, or the value is not a number to Redis.
          local ttl, low = arrival + grace - now, arrival % 10000000
          if ttl ~= lasts then
            lasts = ttl
            ttl = (ttl - ttl % 1000) / 1000 + 1 + margin
            lasting = string.format(ttl < 2147483648 and '%d' or '%.0f', ttl)
          end
          local furthest = value and math.max(reach, tonumber(sub(value, 1, 2)) or 10) or reach
          value = string.format('%d%09d%07d', furthest, (arrival - low) / 10000000, low)
          redis.call('SET', KEYS[key], value, 'PX', lasting)
        end
      end
    end
    return reply
  end
end
