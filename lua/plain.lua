-- Reads all keys with one command if asked, and decides the short form of the arguments where every
-- key is missing or holds a plain arrival time that is not beyond the capacity. lua/decide.lua decides
-- everything else. A call clears all variables of a function, so this part has few and stands apart.
--
-- KEYS, ARGV, reply  as in lua/decide.lua
-- Sets               values to all values, if it read them; short to whether ARGV has the short
--                    form; places to where each key stands last, if one stands twice
local KEYS, ARGV = KEYS, ARGV
local grace = 4194304 -- 2^22 microseconds: keys outlive their state, so that few charges set a TTL
local values, places = nil, nil
ARGV[1] = ARGV[1] + 0
local short = ARGV[1] <= 0
if #KEYS > 1 and (short or ARGV[4] == '1') then
  values = redis.pcall('MGET', unpack(KEYS))
  if values.err then -- the user may not use MGET; decide.lua reads the keys one by one
    values = {false}
  end
end
if short then
  local sub, plain, key, first, arrivals = string.sub, true, 0, 1, {0}
  values = values or {false}
  if ARGV[1] == 0 then
    places, first = {}, 2
  end
  local at = first
  while key < #KEYS do
    local count, limit = -ARGV[at], at + 1
    local last = at + 3 * count
    for i = at, last do
      ARGV[i] = ARGV[i] + 0
    end
    local stop = ARGV[last + 1] and key + ARGV[last + 1] * count or #KEYS
    for i = key + 1, stop do
      local value, before = values[i] or redis.call('GET', KEYS[i]), 0
      if value then
        -- An error if it is no number; tonumber would parse it twice.
        before = #value == 18 and sub(value, 3) + 0
      end
      if not before or before > now + ARGV[limit + 1] or before < 0 or before % 1 ~= 0 then
        plain = false
      end
      values[i], arrivals[i] = value, before
      if places then
        places[KEYS[i]] = i
      end
      limit = limit + 3
      if limit > last then
        limit = at + 1
      end
    end
    key, at = stop, last + 3
  end
  local reply, n, lasts, lasting, moves, moving = {0}, 0, nil, nil, nil, nil
  key, at = 0, first
  while plain and key < #KEYS do
    local count, limit = -ARGV[at], at + 1
    local last = at + 3 * count
    local most = (ARGV[last + 2] or 1) + 0
    local fit = most
    local stop = ARGV[last + 1] and key + ARGV[last + 1] * count or #KEYS
    for i = key + 1, stop do
      local level, cost, fits = arrivals[places and places[KEYS[i]] or i] - now, ARGV[limit + 2], most
      if level < 0 then
        level = 0
      end
      local room = ARGV[limit + 1] - level
      if most * cost > room then
        fits = math.floor(room / cost)
        if fits * cost > room then -- the quotient was rounded up
          fits = fits - 1
        end
        if fits < fit then
          fit = fits
        end
      end
      if most == 1 then
        n = n + 1
        reply[n] = fits - 2 * level - 3
      else
        reply[n + 2], reply[n + 3], reply[n + 4] = level, 0, 0 -- behind the verdict
        n = n + 3
      end
      limit = limit + 3
      if limit > last then -- the last charge of a request
        if most > 1 then
          n = n + 1
          reply[n - 3 * count] = fit
        end
        limit = at + 1
        for charge = i - count + 1, fit > 0 and i or 0 do
          local place, reach = places and places[KEYS[charge]] or charge, ARGV[limit]
          local value, before = values[charge], arrivals[place]
          local arrival = (before > now and before or now) + fit * ARGV[limit + 2]
          local move = arrival - before
          if move ~= moves and value then
            moves, moving = move, string.format('%d', move)
          end
          if not value or move > arrival % grace
            or redis.pcall('INCRBY', KEYS[charge], moving) ~= reach * 10000000000000000 + arrival then
            -- The key is new, needs a new TTL or has another reach. Or Redis rejected INCRBY: the
            -- user may not use it, or the value is not a number to Redis.
            local ttl, low = arrival + grace - now, arrival % 10000000
            if ttl ~= lasts then
              lasts = ttl
              ttl = (ttl - ttl % 1000) / 1000 + 1 + margin
              lasting = string.format(ttl < 2147483648 and '%d' or '%.0f', ttl)
            end
            if value then
              reach = math.max(reach, tonumber(sub(value, 1, 2)) or 10)
            end
            value = string.format('%d%09d%07d', reach, (arrival - low) / 10000000, low)
            redis.call('SET', KEYS[charge], value, 'PX', lasting)
          end
          arrivals[place] = arrival
          limit = limit + 3
        end
        fit, limit = most, at + 1
      end
    end
    key, at = stop, last + 3
  end
  if plain then
    return reply
  end
end
