-- Fixed window and calendar. Each window has its own count. The debt is the part of the count above
-- the limit: it is the first count of the next window.
--
-- Limit  0; the limit; then either 0, the width of a window, 1 if a window starts with its first
--        charge or 0 if windows start at multiples of the width since 1970; or 1 and the start and
--        end of a calendar's period and the end of the next period
-- Cost   units, 0
-- Reply  count, time until the window ends, debt, when the window ends, receipt
-- Value  "start count length", then " debt" if there is a debt. An empty window has no value.
--
-- When the limit gets another width, a running window ends the new width after it started. This is
-- kept even if nothing is charged. Otherwise the key would expire at the end of the old width.
--
-- A receipt is the time from which the charge's window counts, plus 1. Charges of other windows are
-- not refunded.

--: look
local state = states[key]
if not state then
  local value = values[key] or redis.call('GET', KEYS[key])
  local start, finish, held, debt = 0, 0, 0, 0
  if value then
    local s, c, l, d = string.match(value, '^(%d+) (%d+) (%d+) ?(%d*)$')
    start, held, finish, debt = s + 0, c + 0, s + l, (tonumber(d) or 0)
  end
  state = {start = start, finish = finish, count = held, debt = debt, from = 0, after = 0}
  states[key] = state
end
ARGV[limit + 3] = ARGV[limit + 3] + 0
local from, ended, used, owed = state.start, state.finish, state.count, state.debt
local start, finish, after, back
if ARGV[limit + 4] == '1' then
  start, finish, after = ARGV[limit + 5] + 0, ARGV[limit + 6] + 0, ARGV[limit + 7] + 0
  ARGV[limit + 5], ARGV[limit + 6], ARGV[limit + 7] = start, finish, after
else
  local width = ARGV[limit + 5] + 0
  start = now
  if ARGV[limit + 6] == '0' then
    start = now - now % width
  end
  if ended > 0 then
    if from > now then
      ended = ended + now - from
      from, start, back = now, now, true -- the clock went back
    end
    local following = width -- the length of the window that takes the debt
    if now >= ended then
      following = ended - from -- the old width
    elseif ended ~= from + width then
      ended = from + width
      back = back or now < ended
    end
    if now < ended then
      start = from
    elseif owed > 0 and now < ended + math.min(following, width) then
      start, back = ended, back or following ~= width
    else
      from, used, owed = start, 0, 0
    end
  end
  finish, after = start + width, start + 2 * width
end
if from >= finish then
  -- The clock went back out of a calendar's period, so the period of the count is yet to come. The
  -- receipts of this period differ from those of the count.
  if from == finish then
    owed = math.max(owed, used)
  end
  from, back = math.max(now, start + 1), true
elseif from < start then
  if ended < start then
    owed = 0
  end
  from, used = start, owed
  owed = 0
end
state.from, state.after = from, after
if back then
  -- This is kept even if nothing is charged. Otherwise the window would end at the wrong time.
  state.start, state.finish, state.count, state.debt, dirty[key] = from, finish, used, owed, limit
end
reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5] = used, finish - now, owed, finish, 0
n = n + 5

--: fits
fits = reply[found - 4] + whole <= ARGV[limit + 3]

--: commit
local state, most = states[key], ARGV[limit + 3]
local used, left, owed = reply[found - 4], reply[found - 3], reply[found - 2]
if operation == 'force' then
  whole = math.max(0, math.min(whole, 2 * most - used))
  owed = owed + math.max(0, used + whole - math.max(used, most))
end
state.start, state.finish, state.count, state.debt = state.from, now + left, used + whole, owed
receipt = state.from + 1

--: give
local state = states[key]
local used, left, owed = reply[n + 1], reply[n + 2], reply[n + 3]
given = (receipt == -2 or receipt == state.from + 1) and used > 0
if given then
  -- The debt is paid first, because the limit may have been raised since. If the clock went back out
  -- of a calendar's period, the debt is that period's count, and only what exceeds the limit is paid.
  local held, most = math.max(0, used - whole), ARGV[limit + 3]
  local less = used - held
  if ARGV[limit + 4] == '1' and state.from > ARGV[limit + 5] then
    less = math.max(0, used - most) - math.max(0, held - most)
  end
  state.start, state.finish, state.count, state.debt = state.from, now + left, held, math.max(0, owed - less)
  if held == 0 and state.debt == 0 then
    state.start, state.finish = 0, 0 -- as if untouched
  end
elseif operation == 'expire' and used > 0 and receipt == state.start + 1 and bound < state.finish then
  -- The hold ended in the window before, which only its debt has outlived.
  given = true
  state.count, state.debt, state.after = math.max(0, state.count - whole), math.max(0, state.debt - whole), now + left
  if state.debt == 0 then
    state.start, state.finish, state.count = 0, 0, 0
  end
end

--: store
local state = states[key]
local length = state.finish - state.start
ttl = state.finish - now
if state.debt > 0 then
  ttl, value = state.after - now, string.format('%.0f %.0f %.0f %.0f', state.start, state.count, length, state.debt)
elseif state.count == 0 then
  ttl = 0
elseif state.start >= 10000000 and state.count < 2147483648 then
  local low = state.start % 10000000
  local format = length < 2147483648 and '%d%07d %d %d' or '%d%07d %d %.0f'
  value = string.format(format, (state.start - low) / 10000000, low, state.count, length)
else
  value = string.format('%.0f %.0f %.0f', state.start, state.count, length)
end
