-- Reads all keys at once where that is wanted, and decides what lua/decide.lua is asked in short, where nothing but an arrival
-- time is kept of the keys: in few steps, and in a function of few variables, for all that it has are cleared when it is
-- called. Whatever else it is asked is decided there.
--
-- KEYS, ARGV, reply  as there
-- Sets               values to what was read of all keys at once, if it was
local KEYS, ARGV = KEYS, ARGV
local grace = 4194304 -- 2^22 microseconds, for which a key may be kept beyond what it counts, to be moved without a time to live
local reach, values = -ARGV[1], nil
local short = reach > 0
if #KEYS > 1 and (short or ARGV[4] == '1') then
  values = redis.pcall('MGET', unpack(KEYS))
  if values.err then -- the user may not, and reads them one by one
    values = {false}
  end
end
if short then
  local sub, capacity, cost, count = string.sub, ARGV[2] + 0, ARGV[3] + 0, #KEYS
  local last, value, before, arrivals = now + capacity, nil, nil, values and {0} -- of one key no tables are made
  for key = 1, count do
    value = values and values[key] or redis.call('GET', KEYS[key])
    before = 0
    if value then
      before = nil
      if #value == 18 then
        before = tonumber(sub(value, 3))
      end
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
          -- It is new, or gets a new time to live or reach; or the user may not, or what was read as a number is none to Redis.
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
