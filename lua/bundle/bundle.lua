-- Functions of bundles. A bundle is all token buckets of one key, as one text. Each bucket is an entry:
-- label  6 bytes, which tell the buckets of a key apart
-- head   1 byte: reach, plus 128 if the last three numbers follow
-- time   the arrival time
-- part, denominator, since  the fraction of the arrival time; since plus 1, or 0 without one
-- Numbers have 7 bytes, the lowest first. lua/algorithm/token_bucket.lua says what they mean. The order
-- of the entries has no meaning. An empty bundle has no key.
--
-- A bundle lives for 2^22 microseconds after its last bucket is full, and so at least until the next
-- multiple of 2^22. A charge that moves an arrival time between two multiples leaves the TTL alone.
-- SETRANGE then costs less than SET with a TTL.
--
-- The functions capture no variables, because that costs more than parameters.

-- find returns where the entry of a label begins in a bundle, and its length. It returns nil if there is
-- none, and fails if the text is no bundle.
local function find(bundle, label)
  local at, last = 1, #bundle
  if last == 0 then error('no bundle of token buckets') end
  local found, length
  while at <= last do
    local head, top = string.byte(bundle, at + 6) or 255, string.byte(bundle, at + 13) or 255
    local size = head > 127 and 35 or 14
    if top > 31 then break end -- the time is 2^53 or more
    if string.sub(bundle, at, at + 5) == label then
      found, length = at, size
    end
    at = at + size
  end
  if at ~= last + 1 then error('no bundle of token buckets') end
  return found, length
end

-- save writes a bundle. If it is renewed, its TTL or its length may change, and the buckets that have been
-- full for 2^22 microseconds and ten times the margin are left out.
local function save(KEYS, key, bundle, now, margin, renewed)
  if not renewed and redis.pcall('SETRANGE', KEYS[key], '0', bundle) == #bundle then
    return
  end -- otherwise the user may not use SETRANGE
  local at, last, grace = 1, now, 4194304 -- a full bucket may be the last that is left
  while at <= #bundle do
    local head, a, b, c, d, e, f, g = string.byte(bundle, at + 6, at + 13)
    local arrival = a + b * 256 + c * 65536 + d * 16777216 + e * 4294967296 + f * 1099511627776 + g * 281474976710656
    local size = head > 127 and 35 or 14
    if arrival + grace + margin * 10000 > now then
      at, last = at + size, math.max(last, arrival)
    else
      bundle = table.concat({string.sub(bundle, 1, at - 1), string.sub(bundle, at + size)})
    end
  end
  if bundle == '' then
    redis.call('DEL', KEYS[key])
    return
  end
  local ttl = last + grace - now
  ttl = (ttl - ttl % 1000) / 1000 + 1 + margin
  redis.call('SET', KEYS[key], bundle, 'PX', string.format(ttl < 2147483648 and '%d' or '%.0f', ttl))
end
