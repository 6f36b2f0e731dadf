-- Token bucket and leaky bucket, as the generic cell rate algorithm. A token is a length of time:
-- the period divided by the rate. The state is the arrival time, at which the bucket is full again.
-- The level is the time from now until then. A charge raises the level, at most to the capacity,
-- which is the length of the burst.
--
-- Limit  denominator, 0 if nothing refills; capacity in whole microseconds; its fraction; 1 for a
--        queue, otherwise 0; reach
-- Cost   the tokens' length in whole microseconds, its fraction
-- Reply  level, its fraction, receipt
-- Value  "reach arrival" without the space: 2 and 16 digits; then " part denominator" if there is a
--        fraction or a since; then " since" of 16 digits if a receipt was given. A full bucket has
--        no value.
--
-- since     The time of the first charge with a receipt since the bucket was full. A receipt is the
--           time of its charge plus 1, or since plus 1 if that is later. A refund lowers the level
--           by the whole cost, at most to 0. If the bucket has been full since the charge, the
--           charge has drained and gets no refund.
-- reach     2^(reach-10) exceeds every level to which a charge raised the bucket. A higher level
--           means that the clock went back, and becomes the capacity. The reach never falls.
-- capacity  Limits of different capacities see the same level, so each counts the charges of all.
-- states    The fraction, its denominator and since, or nothing without these.
--
-- A plain key lives for 2^22 microseconds after the bucket is full, and so at least until the next
-- multiple of 2^22. A charge that moves the arrival time between two multiples uses INCRBY, which
-- leaves the TTL alone and costs half.

--: look
local start, capacity, denominator = now, ARGV[limit + 3] + 0, ARGV[limit + 2]
if denominator == 0 then start, denominator = 0, 1 end -- the clock stands still
ARGV[limit + 3] = capacity
local arrival, more = numbers[key], states[key] -- more: part, denominator and since
if not arrival then
  local value = values[key] or redis.call('GET', KEYS[key])
  arrival = 0
  if value then
    values[key] = value
    if #value == 18 then
      arrival = tonumber(string.sub(value, 3))
    else
      local reach, a, part, base, since = string.match(value, '^(%d%d)(%d+) (%d+) (%d+) ?(%d*)$')
      arrival = reach and #a == 16 and tonumber(a)
      more = {tonumber(part), tonumber(base), since ~= '' and tonumber(since)}
      states[key], reaches[key] = more, tonumber(reach)
    end
    if not arrival or arrival % 1 ~= 0 then error('no state of a token bucket') end -- before anything is written
  end
  numbers[key], befores[key] = arrival, arrival
end
local level, rest = arrival - start, more and more[1] or 0
if level < 0 then level, rest = 0, 0 end
if rest > 0 and more[2] ~= denominator then level, rest = level + 1, 0 end
if level > capacity and ARGV[limit + 2] > 0 then
  local reach = math.max(reaches[key] or 10, tonumber(string.sub(values[key] or '10', 1, 2)) or 10)
  if level >= 2 ^ (reach - 10) then
    -- Kept even if nothing is charged, or it would not drain. A narrower limit leaves half to a wider one.
    level, rest = capacity, ARGV[limit + 4] + 0
    if 2 ^ (reach - 11) > capacity + 1 then level, rest = math.floor(2 ^ (reach - 11)), 0 end
    numbers[key], states[key] = start + level, {rest, denominator, more and more[3]}
    dirty[key] = limit
  end
end
reply[n + 1], reply[n + 2], reply[n + 3] = level, rest, 0
n = n + 3

--: fits
local level, rest, most = reply[found - 2] + whole, reply[found - 1] + part, ARGV[limit + 3]
fits = true
if operation == 'reserve' then
  if ARGV[limit + 5] == '1' then
    fits = whole == 0 and part == 0 or level - whole < bound or level - whole == bound and rest == part
  elseif ARGV[limit + 2] > 0 then
    fits = whole < most or whole == most and part <= ARGV[limit + 4] + 0
    most = most + bound
  end
end
if rest > 0 and rest >= ARGV[limit + 2] then level, rest = level + 1, rest - ARGV[limit + 2] end
fits = fits and (level < most or level == most and rest <= ARGV[limit + 4] + 0)

--: commit
local level, rest, start, denominator, more = reply[found - 2], reply[found - 1], now, ARGV[limit + 2], states[key]
if denominator == 0 then start, denominator = 0, 1 end
if operation == 'force' then
  -- A debt is at most as much again as the capacity, and 10 years of it.
  local room, left = ARGV[limit + 3] + math.min(ARGV[limit + 3], 315576000000000) - level, ARGV[limit + 4] - rest
  if left < 0 then room, left = room - 1, left + denominator end
  if room < 0 then room, left = 0, 0 end
  if whole > room or whole == room and part > left then whole, part = room, left end
end
local since = more and (level > 0 or rest > 0) and more[3]
level, rest = level + whole, rest + part
if rest >= denominator then level, rest = level + 1, rest - denominator end
receipt = start + 1
if receipts then since = since or start end
if since then receipt = math.max(receipt, since + 1) end
numbers[key] = start + level
if more then
  more[1], more[2], more[3] = rest, denominator, since
elseif rest > 0 or since then
  states[key] = {rest, denominator, since}
end
local reach, raisable = ARGV[limit + 6] + 0, ARGV[limit + 2] == 0 -- the reach is not that of a raised capacity
while (raisable or level > ARGV[limit + 3]) and level >= 2 ^ (reach - 10) do reach = reach + 1 end
if reach > (reaches[key] or 0) then reaches[key] = reach end

--: give
local level, rest, start, denominator, more = reply[n + 1], reply[n + 2], now, ARGV[limit + 2], states[key]
if denominator == 0 then start, denominator = 0, 1 end
given = (level > 0 or rest > 0) and (receipt == -2 or more and more[3] and receipt > more[3])
if given then
  level, rest = level - whole, rest - part
  if rest < 0 then level, rest = level - 1, rest + denominator end
  numbers[key] = start + level
  if more then states[key] = {rest, denominator, more[3]} end
  if level < 0 or level == 0 and rest == 0 then
    numbers[key], states[key], reaches[key], values[key] = start, nil, nil, nil -- as if untouched
  end
end

--: store
local arrival, more, reach, old = numbers[key], states[key], reaches[key] or 10, values[key]
local rest, since = more and more[1] or 0, more and more[3]
ttl = arrival + grace - now
if ARGV[limit + 2] == 0 then
  ttl = arrival > 0 and 3155760000000000 or 0 -- 100 years
elseif arrival == now and rest == 0 then
  ttl = 0
elseif old and #old == 18 and rest == 0 and not since then
  local before = befores[key]
  if before >= arrival - arrival % grace and before < arrival
    and redis.pcall('INCRBY', KEYS[key], string.format('%d', arrival - before)) == reach * 10000000000000000 + arrival then
    ttl = nil
  end -- otherwise the reach differs, the user lacks +incrby, or the text is no number to Redis
end
if ttl and ttl > 0 then
  if old and #old == 18 then reach = math.max(reach, tonumber(string.sub(old, 1, 2)) or 10) end
  local low, base = arrival % 10000000, rest > 0 and more[2] or 1
  local high, small = (arrival - low) / 10000000, base < 2147483648
  if since then
    local after = since % 10000000
    value = string.format(small and '%d%09d%07d %d %d %09d%07d' or '%d%09d%07d %.0f %.0f %09d%07d',
      reach, high, low, rest, base, (since - after) / 10000000, after)
  elseif rest > 0 then
    value = string.format(small and '%d%09d%07d %d %d' or '%d%09d%07d %.0f %.0f', reach, high, low, rest, base)
  else
    value = string.format('%d%09d%07d', reach, high, low)
  end
end
