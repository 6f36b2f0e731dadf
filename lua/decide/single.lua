-- Decides where all requests are one run that charges one bucket each, and every bucket is the only one
-- of its key and plain, or its key has none. lua/decide/buckets.lua decides everything else. This part
-- saves a third of the server's work for each of many keys.
--
-- KEYS, ARGV, reply  as in lua/decide/buckets.lua
-- Sets               values to the values that it has read
local byte, char, single = string.byte, string.char, #ARGV[1] == 25
local r, s, t, u, l1, l2, l3, l4, l5, l6, reach, m1, m2, m3, m4, m5, m6, m7, c1, c2, c3, c4, c5, c6, c7 = byte(ARGV[1], 1, 25)
if single and r + s * 256 == #KEYS then
  local most = t + u * 256
  local reply, size, texts, arrivals = {0, 0, 0, 0}, 0, {false}, {0} -- an arrival below 0 needs a TTL
  local capacity = m1 + m2 * 256 + m3 * 65536 + m4 * 16777216 + m5 * 4294967296 + m6 * 1099511627776 + m7 * 281474976710656
  local cost = c1 + c2 * 256 + c3 * 65536 + c4 * 16777216 + c5 * 4294967296 + c6 * 1099511627776 + c7 * 281474976710656
  values = values or {false}
  for k = 1, #KEYS do
    local bundle, before, level, head = values[k], 0, 0, reach
    if not bundle then
      bundle = redis.call('GET', KEYS[k])
      values[k] = bundle
    end
    if bundle then
      local m1, m2, m3, m4, m5, m6, old, a, b, d, e, f, g, h = byte(bundle, 1, 14)
      single = #bundle == 14 and old < 64 and h < 32 and
        m1 == l1 and m2 == l2 and m3 == l3 and m4 == l4 and m5 == l5 and m6 == l6
      if single then
        before = a + b * 256 + d * 65536 + e * 16777216 + f * 4294967296 + g * 1099511627776 + h * 281474976710656
        if before > now then
          level, head = before - now, old > reach and old or reach
        end
        -- Beyond 2^old, quicker limits charged the bucket, and the clock went back.
        single = level <= capacity and (old >= reach or level <= 2 ^ old)
      end
      if not single then
        break
      end
    end
    local room, fit = capacity - level, most
    if most * cost > room then
      fit = math.floor(room / cost)
      if fit * cost > room then -- the quotient was rounded up
        fit = fit - 1
      end
    end
    if most == 1 then
      size = size + 1
      reply[size] = fit - 2 * level - 3
    else
      reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = fit, level, 0, 0
      size = size + 4
    end
    texts[k] = false
    if fit > 0 then
      local arrival = now + level + fit * cost
      local low = arrival % 16777216
      local high = (arrival - low) / 16777216
      local p, q, s, t, u = low % 256, low % 65536, high % 256, high % 65536, high % 16777216
      texts[k] = char(l1, l2, l3, l4, l5, l6, head, p, (q - p) / 256, (low - q) / 65536, s, (t - s) / 256,
        (u - t) / 65536, (high - u) / 16777216)
      -- A key without a bucket has no TTL yet, and that of another may end before.
      arrivals[k] = arrival % 4194304 < arrival - before and -arrival or arrival
    end
  end
  for k = 1, single and #KEYS or 0 do
    local text, arrival = texts[k], arrivals[k]
    -- The user may not use SETRANGE.
    if text and (arrival < 0 or redis.pcall('SETRANGE', KEYS[k], '0', text) ~= 14) then
      local ttl = math.abs(arrival) + 4194304 - now
      ttl = (ttl - ttl % 1000) / 1000 + 1 + margin
      redis.call('SET', KEYS[k], text, 'PX', string.format(ttl < 2147483648 and '%d' or '%.0f', ttl))
    end
  end
  if single and size == 1 then
    return reply[1]
  elseif single then
    for i = size + 1, #reply do
      reply[i] = nil
    end
    return reply
  end
end
