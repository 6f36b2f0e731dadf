-- Sliding window of two counters. The previous window counts by the part of it that a window ending
-- now still covers. A key's windows start with its first charge.
--
-- Limit  denominator 0, because costs have no fraction; the limit; ticks in a window; length of a tick; width
--        of a window, which is part of the key's name: another width counts anew
-- Cost   units, 0
-- Reply  count of the previous window, count of this one, time since this one started, receipt
-- Value  "start count previous". A key whose windows are empty has no value.
-- Names  start, count, previous, since, begun, past, most, ticks, tick, width, from, used, last, weight
--
-- Time counts in whole ticks, so that limit times ticks stays below 2^50.
--
-- A receipt is the start of the charge's window plus 1. It refunds while that window counts.
--
-- start, count, previous    as stored
-- since                     the start as it was read, on which the key's time to live is based
-- begun, past               the texts of start and previous as read: a text that stays costs less than to
--                           print its number again
-- most, ticks, tick, width  of the limit
-- from, used, last          start, count and previous at now
-- weight                    how many ticks of the previous window count at now

--: read
if value then
  local c
  begun, c, past = string.match(value, '^(%d+) (%d+) (%d+)$')
  start = begun + 0
  count = c + 0
  previous = past + 0
  since = start
else
  start, count, previous, since = now, 0, 0, 0
end

--: limit
most, ticks, tick, width = ARGV[p] + 0, ARGV[p + 1] + 0, ARGV[p + 2] + 0, ARGV[p + 3] + 0
size = 4

--: look
if start > now then
  -- The clock went back. This is kept even if nothing is charged. Otherwise the window would not
  -- end.
  start, changed = now, true
end
from = start
used = count
last = previous
if now - from >= width then
  if now - from < 2 * width then
    from, last = from + width, used
    used = 0
  else
    from, used, last = now, 0, 0
  end
end
if used == 0 and last == 0 then
  from = now
end
local passed = now - from
weight = ticks - (passed - passed % tick) / tick
reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = last, used, passed, 0
n = n + 4

--: fits
-- Below a lowered limit, min keeps the product below 2^53.
fits = used + whole <= most and math.min(last, 2 * most) * weight + (used + whole) * ticks <= most * ticks

--: force
-- A debt is at most the limit once more.
local covered = math.min(last, 2 * most) * weight + ticks - 1
whole = math.max(0, math.min(whole, 2 * most - used - math.floor((covered - covered % ticks) / ticks)))

--: commit
start = from
count = used + whole
previous = last
receipt = from + 1

--: give
local held, rest = used, last
if receipt == from + 1 and held > 0 then
  held, given = math.max(0, held - whole), true
elseif receipt == from - width + 1 and rest > 0 then
  rest, given = math.max(0, rest - whole), true
end
if given then
  start, count, previous = from, held, rest
end

--: store
if start ~= since then
  ttl = start + 2 * width - now
end
if count == 0 and previous == 0 then
  ttl = 0
elseif start == since and previous == past + 0 and count < 2147483648 then
  value = begun .. format(' %d ', count) .. past
elseif start >= 10000000 and count < 2147483648 and previous < 2147483648 then
  local low = start % 10000000
  value = format('%d%07d %d %d', (start - low) / 10000000, low, count, previous)
else
  value = format('%.0f %.0f %.0f', start, count, previous)
end
