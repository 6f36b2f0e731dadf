-- Token bucket and leaky bucket, as the generic cell rate algorithm. A token is a length of time:
-- the period divided by the rate. The state is the arrival time, at which the bucket is full again.
-- The level is the time from now until then. A charge raises the level, at most to the capacity,
-- which is the length of the burst.
--
-- Limit  denominator; capacity in whole microseconds; its fraction; 1 for a leaky bucket, which queues,
--        otherwise 0; reach; label
-- Cost   the tokens' length in whole microseconds, its fraction
-- Reply  level, its fraction, receipt
-- Value  a bundle, as lua/bundle/bundle.lua describes it, in which the bucket is the entry with the
--        label. There are a part and a denominator if there is a fraction or a since, and a since if a
--        receipt was given. A full bucket has no entry.
-- Names  label, most, spare, refill, queue, reach, bundle, stood, arrival, fraction, per, since, reached, level, rest
--
-- since     The time of the first charge with a receipt since the bucket was full. A receipt is the
--           time of its charge plus 1, or since plus 1 if that is later. A refund lowers the level
--           by the whole cost, at most to 0. If the bucket has been full since the charge,
--           nothing of that is left, and it gets no refund.
-- reach     No charge has raised the level above 2^reach since the bucket was full. A higher level means
--           that the clock went back: see clip.
-- capacity  Limits of different capacities see the same level, so each counts the charges of all.
--
-- most, spare, refill, queue  of the limit: the capacity, its fraction, the denominator, queue; reach is
--                             the number of bits of the capacity
-- bundle, stood               the text of the key as read, empty without one; the arrival time in it
-- arrival, fraction, per      the arrival time, its fraction and the denominator of that
-- since, reached              false without a receipt; the reach as stored, 0 for a full bucket
-- level, rest                 at now: the level and its fraction

--: limit
refill, most, spare, queue, reach, label = ARGV[p - 1], ARGV[p] + 0, ARGV[p + 1] + 0, ARGV[p + 2], ARGV[p + 3] + 0, ARGV[p + 4]

--: read
bundle, arrival, fraction, per, since, reached = value or '', 0, 0, 1, false, 0
local spot = value and find(value, label)
if spot then
  local mark, a, b, c, d, e, f, g = string.byte(bundle, spot + 6, spot + 13)
  -- The entry of the bucket begins at spot. Its head is mark, and its time has these bytes.
  --= time
  reached = mark % 64
  if mark > 127 then
    local a, b, c, d, e, f, g, h, i, j, k, l, m, o, q, r, s, t, u, v, w = string.byte(bundle, spot + 14, spot + 34)
    if g > 31 or o > 31 or w > 31 then error('no bundle of token buckets') end
    fraction = a + b * 256 + c * 65536 + d * 16777216 + e * 4294967296 + f * 1099511627776 + g * 281474976710656
    per = h + i * 256 + j * 65536 + k * 16777216 + l * 4294967296 + m * 1099511627776 + o * 281474976710656
    since = q + r * 256 + s * 65536 + t * 16777216 + u * 4294967296 + v * 1099511627776 + w * 281474976710656
    since = since > 0 and since - 1
  end
end
stood = arrival

--: time
arrival = a + b * 256 + c * 65536 + d * 16777216 + e * 4294967296 + f * 1099511627776 + g * 281474976710656

--: look
level = arrival - now
rest = fraction
if level < 0 then
  level, rest = 0, 0
end
if rest > 0 and per ~= refill then
  level = level + 1
  rest = 0
end
if (level > most or reached < reach) and level > 2 ^ reached then
  --= clip
end
reply[n + 1], reply[n + 2], reply[n + 3] = level, rest, 0
n = n + 3

--: clip
-- The clock went back. The level becomes the capacity, but at least half of 2^reached, which a narrower
-- limit leaves to a wider one, and at most 2^reached. So the next limit that finds the level takes it as
-- it is. This is kept even if nothing is charged. Otherwise it would not drain.
local longest = math.floor(2 ^ reached)
local half = math.floor(longest / 2)
if most < half then
  level, rest = half, 0
elseif most < longest then
  level, rest = most, spare
else
  level, rest = longest, 0
end
arrival = now + level
fraction, per, changed = rest, refill, true

--: fits
local ready, highest = true, most
if operation == 'reserve' then
  if queue == '1' then -- it starts within the bound
    ready = whole == 0 and part == 0 or level < bound or level == bound and rest == 0
  else -- it fits a full bucket, and this one within the bound
    ready = whole < most or whole == most and part <= spare
    highest = most + bound
  end
end
local sum, over = level + whole, rest + part
if over > 0 and over >= refill then
  sum = sum + 1
  over = over - refill
end
fits = ready and (sum < highest or sum == highest and over <= spare)

--: force
-- A debt is at most 10 years.
local room, left = most + 315576000000000 - level, spare - rest
if left < 0 then room, left = room - 1, left + refill end
if room < 0 then room, left = 0, 0 end
if whole > room or whole == room and part > left then whole, part = room, left end

--: commit
if level == 0 and rest == 0 then
  since, reached = false, 0 -- the bucket was full
end
level = level + whole
fraction = rest + part
if fraction > 0 and fraction >= refill then
  level = level + 1
  fraction = fraction - refill
end
arrival = now + level
per = refill
receipt = now + 1
if receipts then since = since or now end
if since and since > now then receipt = since + 1 end
if reached < reach then reached = reach end
while level > most and level >= 2 ^ reached do reached = reached + 1 end

--: give
given = (level > 0 or rest > 0) and (receipt == -2 or since and receipt > since)
if given then
  level, fraction = level - whole, rest - part
  if fraction < 0 then
    level = level - 1
    fraction = fraction + refill
  end
  arrival, per = now + level, refill
  if level < 0 or level == 0 and fraction == 0 then -- as if untouched
    arrival, fraction, per, since, reached = now, 0, 1, false, 0
  end
end

--: bytes
-- The bytes of the time are a, (b - a) / 256, (low - b) / 65536, c, (d - c) / 256, (e - d) / 65536 and
-- (high - e) / 16777216.
local low = arrival % 16777216
local high = (arrival - low) / 16777216
local a, b, c, d, e = low % 256, low % 65536, high % 256, high % 65536, high % 16777216

--: store
local name, entry, spot, length = KEYS[key], '', nil, nil
local text = bundles[name] or bundle
if fraction > 0 or arrival ~= now then
  -- The head, the time in bytes, and the three numbers or nothing.
  local tail, mark, kept = '', reached, fraction > 0 and per or 1
  local long = fraction > 0 or since
  if long then mark = mark + 128 end
  if long then
    local low, under, owed = fraction % 16777216, kept % 16777216, since and since + 1 or 0
    local high, above = (fraction - low) / 16777216, (kept - under) / 16777216
    local a, b, c, d, e = low % 256, low % 65536, high % 256, high % 65536, high % 16777216
    local h, i, j, k, l = under % 256, under % 65536, above % 256, above % 65536, above % 16777216
    local least = owed % 16777216
    local top = (owed - least) / 16777216
    local m, o, q, r, s = least % 256, least % 65536, top % 256, top % 65536, top % 16777216
    tail = string.char(a, (b - a) / 256, (low - b) / 65536, c, (d - c) / 256, (e - d) / 65536, (high - e) / 16777216,
      h, (i - h) / 256, (under - i) / 65536, j, (k - j) / 256, (l - k) / 65536, (above - l) / 16777216,
      m, (o - m) / 256, (least - o) / 65536, q, (r - q) / 256, (s - r) / 65536, (top - s) / 16777216)
  end
  --= bytes
  entry = label .. string.char(mark, a, (b - a) / 256, (low - b) / 65536, c, (d - c) / 256, (e - d) / 65536, (high - e) / 16777216) .. tail
end
if text ~= '' then
  spot, length = find(text, label)
end
if not spot then
  spot, length = #text + 1, 0
end
if #entry ~= length or arrival % grace < arrival - stood then
  renewed[name] = true
end
if length < #text then
  entry = table.concat({string.sub(text, 1, spot - 1), entry, string.sub(text, spot + length)})
end
bundles[name] = entry

--: beside
-- What the other parts need in lua/decide/straight.lua.
local bundles, renewed, operation, receipts = {}, {}, 'decide', false

--: straight limit
do
  local a, b, c, d, e, f, g, _, h, i, j, k, l, m, o, _, q, r, s, t, u, v, w = string.byte(ARGV[p], 8, 30)
  cost = a + b * 256 + c * 65536 + d * 16777216 + e * 4294967296 + f * 1099511627776 + g * 281474976710656
  part = h + i * 256 + j * 65536 + k * 16777216 + l * 4294967296 + m * 1099511627776 + o * 281474976710656
  refill = q + r * 256 + s * 65536 + t * 16777216 + u * 4294967296 + v * 1099511627776 + w * 281474976710656
end
do
  local a, b, c, d, e, f, g, _, h, i, j, k, l, m, o = string.byte(ARGV[p], 32, 46)
  most = a + b * 256 + c * 65536 + d * 16777216 + e * 4294967296 + f * 1099511627776 + g * 281474976710656
  spare = h + i * 256 + j * 65536 + k * 16777216 + l * 4294967296 + m * 1099511627776 + o * 281474976710656
end
label, reach, queue, size = string.sub(ARGV[p], 1, 6), string.byte(ARGV[p], 7), string.sub(ARGV[p], 48), 1

--: straight store
--= store
value = bundles[KEYS[key]]

--: straight put
if value then
  save(KEYS, key, value, now, margin, renewed[KEYS[key]])
end

--: charge
-- The parts from here on are those of lua/decide/buckets.lua. This one reads a charge.
l1, l2, l3, l4, l5, l6, head, m1, m2, m3, m4, m5, m6, m7, c1, c2, c3, c4, c5, c6, c7 = byte(run, charge, charge + 20)
capacity = m1 + m2 * 256 + m3 * 65536 + m4 * 16777216 + m5 * 4294967296 + m6 * 1099511627776 + m7 * 281474976710656
cost = c1 + c2 * 256 + c3 * 65536 + c4 * 16777216 + c5 * 4294967296 + c6 * 1099511627776 + c7 * 281474976710656
reach = head % 64

--: open
at = known and known[KEYS[key]] or key
bundle = values[at] or redis.call('GET', KEYS[key])
if bundle == '' then error('no bundle of token buckets') end

--: find
-- The entry is expected at spot. Without one, its place is behind all others. text and bundle from from on
-- are the bundle as the charges before have left it.
local k1, k2, k3, k4, k5, k6, old, a, b, c, d, e, f, g = byte(bundle, spot, spot + 13)
if k1 ~= l1 or k2 ~= l2 or k3 ~= l3 or k4 ~= l4 or k5 ~= l5 or k6 ~= l6 then
  bundle = text .. sub(bundle, from)
  spot, text, from = nil, '', 1
  if bundle ~= '' then
    --= bundle
    spot = find(bundle, sub(run, charge, charge + 5))
  end
  old, a, b, c, d, e, f, g = byte(bundle, spot and spot + 6 or 1, spot and spot + 13 or 0)
end
local arrival, level, mark, length, tail = 0, 0, reach, 14, nil
if old then
  if old > 63 or g > 31 then
    old, length, tail = old - 128, 35, sub(bundle, spot + 14, spot + 34)
    if old < 0 or old > 63 or g > 31 or sub(tail, 1, 14) ~= '\0\0\0\0\0\0\0\1\0\0\0\0\0\0' then
      return {-1} -- it has a fraction, or is no bucket
    end
  end
  --= time
  if arrival > now then
    level, mark = arrival - now, old > reach and old or reach
    if (level > capacity or old < reach) and level > 2 ^ old then
      return {-1} -- the clock went back: see clip
    end
  elseif tail then
    tail, change = nil, 2
  end
else
  spot, length, change = #bundle + 1, 0, 2
end

--: most
local most = room > 0 and math.floor(room / cost) or 0
if most > 0 and most * cost > room then -- the quotient was rounded up
  most = most - 1
end

--: charged
local before = arrival
arrival = now + level + whole
--= bytes
local entry = char(l1, l2, l3, l4, l5, l6, tail and mark + 128 or mark, a, (b - a) / 256, (low - b) / 65536, c, (d - c) / 256, (e - d) / 65536, (high - e) / 16777216)
if tail then
  entry = entry .. tail
end
if arrival % grace < arrival - before then change = 2 end -- the TTL may end before
