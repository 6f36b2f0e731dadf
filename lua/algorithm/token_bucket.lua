-- Token bucket and leaky bucket, as the generic cell rate algorithm. A token is a length of time:
-- the period divided by the rate. The state is the arrival time, at which the bucket is full again.
-- The level is the time from now until then. A charge raises the level, at most to the capacity,
-- which is the length of the burst.
--
-- Limit  denominator, 0 if nothing refills; capacity in whole microseconds; its fraction; 1 for a
--        queue, the lifetime in microseconds of a bucket that nothing refills, otherwise 0; reach;
--        label
-- Cost   the tokens' length in whole microseconds, its fraction
-- Reply  level, its fraction, receipt
-- Value  a bundle, as lua/bundle/bundle.lua describes it, in which the bucket is the entry with the
--        label. There are a part and a denominator if there is a fraction, a since or a lifetime, and
--        a since if a receipt was given. A full bucket has no entry.
--
-- since     The time of the first charge with a receipt since the bucket was full. A receipt is the
--           time of its charge plus 1, or since plus 1 if that is later. A refund lowers the level
--           by the whole cost, at most to 0. If the bucket has been full since the charge, the
--           charge has drained and gets no refund.
-- reach     2^(reach-10) exceeds every level to which a charge raised the bucket since it was full. A
--           higher level means that the clock went back. It becomes the capacity, but at least half of
--           2^(reach-10) and at most all of it.
-- capacity  Limits of different capacities see the same level, so each counts the charges of all.
-- lifetime  A bucket is full again that long after its last charge. Its denominator is the time of that.
-- states    The fraction, its denominator and since, or nothing without these.

--: look
local start, capacity, denominator = now, ARGV[limit + 3] + 0, ARGV[limit + 2]
if denominator == 0 then start, denominator = 0, 1 end -- the clock stands still
ARGV[limit + 3] = capacity
local arrival, more = numbers[key], states[key] -- more: part, denominator and since
if not arrival then
  local bundle = values[key] or redis.call('GET', KEYS[key])
  local spot = bundle and find(bundle, ARGV[limit + 7])
  arrival = 0
  if bundle then values[key] = bundle end
  if spot then
    local head = string.byte(bundle, spot + 6)
    arrival, reaches[key] = integer(bundle, spot + 7), head % 64 + 10
    if head > 127 then
      local since = integer(bundle, spot + 28)
      more = {integer(bundle, spot + 14), integer(bundle, spot + 21), since > 0 and since - 1}
      states[key] = more
    end
  end
  numbers[key] = arrival
end
local level, rest = arrival - start, more and more[1] or 0
if level < 0 then level, rest = 0, 0 end
if start == 0 and more and more[2] > 1 and more[2] <= now then level = 0 end
if rest > 0 and more[2] ~= denominator then level, rest = level + 1, 0 end
if level > 0 and ARGV[limit + 2] > 0 then
  local most = math.floor(2 ^ ((reaches[key] or 10) - 10))
  if level > most then
    -- Kept even if nothing is charged, or it would not drain. A narrower limit leaves half to a wider
    -- one, and a wider one leaves no more than most. So the next limit that finds the level takes it as
    -- it is.
    level, rest = capacity, ARGV[limit + 4] + 0
    if most > 2 * capacity + 2 then
      level, rest = math.floor(most / 2), 0
    elseif most <= capacity then
      level, rest = most, 0
    end
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

--: force
local level, rest, denominator = reply[found - 2], reply[found - 1], ARGV[limit + 2]
if denominator == 0 then denominator = 1 end
-- A debt is at most 10 years if the bucket refills.
local room, left = ARGV[limit + 3] + 315576000000000 - level, ARGV[limit + 4] - rest
if ARGV[limit + 2] == 0 then room = 4000000000000000 - level end
if left < 0 then room, left = room - 1, left + denominator end
if room < 0 then room, left = 0, 0 end
if whole > room or whole == room and part > left then whole, part = room, left end

--: commit
local level, rest, start, denominator, more = reply[found - 2], reply[found - 1], now, ARGV[limit + 2], states[key]
local clock, lifetime = now, false -- of receipts
if denominator == 0 then
  start, denominator = 0, 1
  lifetime = ARGV[limit + 5] ~= '0' and ARGV[limit + 5]
  clock = lifetime and now or 0
end
local since = more and (level > 0 or rest > 0) and more[3]
if level == 0 and rest == 0 then reaches[key] = nil end -- the bucket was full
level, rest = level + whole, rest + part
if rest >= denominator then level, rest = level + 1, rest - denominator end
receipt = clock + 1
if receipts then since = since or clock end
if since then receipt = math.max(receipt, since + 1) end
numbers[key] = start + level
if lifetime then denominator = whole > 0 and now + lifetime or more and more[2] or 1 end
if more then
  more[1], more[2], more[3] = rest, denominator, since
elseif rest > 0 or since or lifetime then
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
  if more then states[key] = {rest, start == 0 and more[2] or denominator, more[3]} end
  if level < 0 or level == 0 and rest == 0 then
    numbers[key], states[key], reaches[key] = start, nil, nil -- as if untouched
  end
end

--: store
local arrival, more, name, entry, label = numbers[key], states[key], KEYS[key], '', ARGV[limit + 7]
local rest, since, frozen = more and more[1] or 0, more and more[3], ARGV[limit + 2] == 0
local bundle = bundles[name] or values[key] or ''
if rest > 0 or arrival ~= (frozen and 0 or now) then
  local head, kept = (reaches[key] or 10) - 10 + (frozen and 64 or 0), (rest > 0 or frozen) and more and more[2] or 1
  local char, more = string.char, rest > 0 or since or kept > 1
  entry = char(head + (more and 128 or 0), bytes(arrival))
  if more then
    entry = table.concat({entry, char(bytes(rest)), char(bytes(kept)),
      char(bytes(since and since + 1 or 0))})
  end
  entry = table.concat({label, entry})
end
local spot, length = #bundle + 1, 0
if bundle ~= '' then
  local at, size = find(bundle, label)
  spot, length = at or spot, size or 0
end
bundles[name] = table.concat({string.sub(bundle, 1, spot - 1), entry, string.sub(bundle, spot + length)})
