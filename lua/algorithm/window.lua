-- Fixed window, calendar and grant. Each window has its own count. The debt is the part of the count above
-- the limit: it is the first count of the next window, which owes what exceeds the limit again. So
-- each window pays as much as the limit, whether somebody asks in it or not.
--
-- Limit  denominator 0, because costs have no fraction; the limit; then one of these:
--          width                 windows that start at multiples of the width since 1970
--          -width                windows that start with their first charge
--          0, start, end, mean   a calendar: its period of now, and the mean length of its periods
--          0, -1, length, 0      a grant, which counts for so long from its first charge on
--          0, -1, length, 1      a grant, which counts for so long from its last charge on
--        If a limit is raised, ARGV has the limit without raises at minus its index.
-- Cost   units, 0
-- Reply  count, time until the window ends, debt, when the window ends, receipt
-- Value  "start count length", then " debt" if there is a debt. An empty window has no value.
-- Names  start, ended, count, debt, expires, begun, lasts, most, pays, width, first, opens, from, used, owed, finish
--
-- When the limit of a fixed window gets another width, a running window ends the new width after it
-- started. This is kept even if nothing is charged. Otherwise the key would expire at the end of the old
-- width. A running grant keeps its end, and a calendar with other periods has another key.
--
-- A grant has one window, and no debt: what exceeds its limit counts until it is forgotten.
--
-- A receipt is the time from which the charge's window counts, plus 1. Charges of other windows are
-- not refunded.
--
-- start, ended, count, debt  of the window that is stored; all are 0 if there is none
-- expires                    when it ends by the time to live that the key has; 0 if there is a debt
-- begun, lasts               the start and the length as they stand in the text: a text that stays costs
--                            less than to print its number again
-- most, pays                 of the limit: with raises, and what a window pays, which is without them
-- width, first, opens        the width or mean length; whether a window starts with its first charge, or
--                            a grant counts from its last one on; the start of a calendar's period, -1
--                            for a grant, otherwise 0
-- from, used, owed, finish   when the window of now began, its count, its debt, when it ends

--: read
if value then
  local c, d
  begun, c, lasts, d = string.match(value, '^(%d+) (%d+) (%d+) ?(%d*)$')
  start = begun + 0
  count = c + 0
  ended = start + lasts
  expires = ended
  debt = 0
  if d ~= '' then
    expires = 0
    debt = d + 0
  end
else
  start, ended, count, debt, expires = 0, 0, 0, 0, 0
end

--: limit
most, width, opens, size = ARGV[p] + 0, ARGV[p + 1] + 0, 0, 2
pays = ARGV[-p] or most
first = width < 0
if first then
  width = -width
elseif width == 0 then
  opens, finish, size = ARGV[p + 2] + 0, ARGV[p + 3] + 0, 5
  if opens < 0 then
    width, first = finish, ARGV[p + 4] == '1'
  else
    width = ARGV[p + 4] -- of a calendar, which only a debt needs as a number
  end
end

--: period
if opens > 0 and (now < opens or now >= finish) then
  return {-1, now}
end

--: look
from = start
used = count
owed = debt
local begins, ends = opens, ended
if opens <= 0 and from > now then
  ends = ends + now - from
  from, changed = now, true -- the clock went back
end
if opens < 0 then
  --= grant
elseif opens == 0 then
  --= fixed
elseif from >= finish then
  --= early
end
if from < begins then
  --= owe
end
if changed then
  -- This is kept even if nothing is charged. Otherwise the window would end at the wrong time.
  start, ended, count, debt = from, finish, used, owed
end
reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5] = used, finish - now, owed, finish, 0
n = n + 5

--: grant
if now >= ends then
  from, used, ends = now, 0, now + width
end
begins, finish = from, ends

--: fixed
-- The window that takes the debt begins where the last one ended. Without a debt, a window of now begins.
begins = now
if not first then
  begins = now - now % width
end
if ends > 0 then
  local following = width -- the length of the windows that take the debt
  if now >= ends then
    following = ends - from -- the old width
  elseif ends ~= from + width then
    ends = from + width
    changed = changed or now < ends
  end
  if now < ends then
    begins = from
  else
    if owed > 0 then
      local each = math.min(following, width) -- another width does not make a debt last longer
      local passed = math.floor((now - ends) / each)
      owed = passed > owed / pays and 0 or owed - passed * pays
      ends = ends + passed * each
    end
    if owed > 0 then
      begins, changed = ends, changed or following ~= width
    else
      from, used = begins, 0
    end
  end
end
finish = begins + width

--: early
-- The clock went back out of a calendar's period, so the period of the count is yet to come. The receipts
-- of this period differ from those of the count.
if from == finish then
  owed = math.max(owed, used) -- its period is the next one, which begins with it
end
from, changed = math.max(now, begins + 1), true

--: owe
-- The first count of a window is the debt of those before it, of which each paid as much as the limit.
from, used = begins, owed
if owed > 0 then
  local passed = math.floor((begins - ends) / width + 0.5) -- no period is half as long again as another
  used = passed > owed / pays and 0 or owed - passed * pays
  owed = math.max(0, used - pays)
end

--: fits
fits = used + whole <= most

--: force
whole = math.max(0, math.min(whole, 4000000000000000 - used))
if opens >= 0 then
  owed = owed + math.max(0, used + whole - math.max(used, most))
end

--: commit
start = from
ended = finish
if opens < 0 and first and whole > 0 then
  ended = now + width
end
count = used + whole
debt = owed
receipt = from + 1

--: give
given = (receipt == -2 or receipt == from + 1) and used > 0
if given then
  -- The debt is paid first, because the limit may have been raised since. If the clock went back out
  -- of a calendar's period, the debt is that period's count, and only what exceeds the limit is paid.
  local held = math.max(0, used - whole)
  local less = used - held
  if opens > 0 and from > opens then
    less = math.max(0, used - most) - math.max(0, held - most)
  end
  start, ended, count, debt = from, finish, held, math.max(0, owed - less)
  if held == 0 and debt == 0 then
    start, ended = 0, 0 -- as if untouched
  end
elseif operation == 'expire' and used > 0 and receipt == start + 1 and bound < ended then
  -- The hold ended in the window before, which only its debt has outlived.
  given = true
  count, debt = math.max(0, count - whole), math.max(0, debt - whole)
  if debt == 0 then
    start, ended, count = 0, 0, 0
  end
end

--: store
local length = ended - start
if ended ~= expires then
  ttl = ended - now
end
if debt > 0 then
  local windows = math.ceil(debt / pays) + (opens > 0 and 1 or 0) -- the mean is not the length of each
  windows = math.min(windows, 3155760000000000 / width) -- no product overflows in Lua 5.4
  ttl = math.min(ended - now + windows * width, 3155760000000000)
  ttl = math.max(0, ttl) -- less of a debt may have been paid long ago
  value = format('%.0f %.0f %.0f %.0f', start, count, length, debt)
elseif count == 0 then
  ttl = 0
elseif ended == expires and start == begun + 0 and count < 2147483648 then
  value = begun .. format(' %d ', count) .. lasts
elseif start >= 10000000 and count < 2147483648 then
  local low = start % 10000000
  local form = length < 2147483648 and '%d%07d %d %d' or '%d%07d %d %.0f'
  value = format(form, (start - low) / 10000000, low, count, length)
else
  value = format('%.0f %.0f %.0f', start, count, length)
end
