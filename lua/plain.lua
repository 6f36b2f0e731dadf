-- Reads all keys with one command if asked, and decides the short form of the arguments where every
-- key holds a plain arrival time. lua/decide.lua decides everything else. This is a part of its own
-- because a call clears all variables of a function, so few variables make a fast call.
--
-- KEYS, ARGV, reply  as in lua/decide.lua
-- Sets               values to all values, if it read them; short to whether ARGV has the short
--                    form
local KEYS, ARGV = KEYS, ARGV
local grace = 4194304 -- 2^22 microseconds: keys outlive their state, so that few charges set a TTL
local count, values = -ARGV[1], nil -- charges of a request in the short form
local short = count > 0
if #KEYS > 1 and (short or ARGV[4] == '1') then
  values = redis.pcall('MGET', unpack(KEYS))
  if values.err then -- the user may not use MGET; decide.lua reads the keys one by one
    values = {false}
  end
end
if short then
  local arrivals, at, value, before = {0, nil, nil, nil}, 3, nil, nil
  for key = 1, #KEYS do
    value = values and values[key] or redis.call('GET', KEYS[key])
    before = 0
    if value then
      before = #value == 18 and tonumber(string.sub(value, 3))
    end
    if not before or before > now + ARGV[at] or before < 0 or before % 1 ~= 0 then
      arrivals = nil
      break
    end
    values = values or {false}
    values[key], arrivals[key] = value, before
    at = at < 3 * count and at + 3 or 3
  end
  if arrivals then
    local reply, n, lasts, lasting, moves, moving = {0}, 0, nil, nil, nil, nil
    for first = 0, #KEYS - 1, count do
      local most, verdict = (ARGV[3 * count + 2 + first / count] or 1) + 0, 0
      local brief, fit, head = count + most == 2, most, n + 1
      n = head
      for i = 1, count do
        local arrival, last, cost = arrivals[first + i], now + ARGV[3 * i], ARGV[3 * i + 1]
        if arrival < now then
          arrival = now
        end
        if arrival + most * cost > last then
          local some = math.floor((last - arrival) / cost)
          if arrival + some * cost > last then -- the quotient was rounded up
            some = some - 1
          end
          fit, verdict = math.min(fit, some), verdict + 2 ^ (i - 1)
        end
        if brief then
          reply[n] = fit == 1 and 2 + arrival - now or now - arrival - 2
        else
          reply[n + 1], reply[n + 2], reply[n + 3] = arrival - now, 0, 0
          n = n + 3
        end
      end
      if not brief then
        reply[head] = most > 1 and fit or math.floor(verdict)
      end
      for i = 1, fit > 0 and count or 0 do
        local key, reach = first + i, ARGV[3 * i - 1] + 0
        value, before = values[key], arrivals[key]
        local arrival = math.max(before, now) + fit * ARGV[3 * i + 1]
        if not brief then
          reply[head + 3 * i] = arrival
        end
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
          local furthest = value and math.max(reach, tonumber(string.sub(value, 1, 2)) or 10) or reach
          value = string.format('%d%09d%07d', furthest, (arrival - low) / 10000000, low)
          redis.call('SET', KEYS[key], value, 'PX', lasting)
        end
      end
    end
    return reply
  end
end
