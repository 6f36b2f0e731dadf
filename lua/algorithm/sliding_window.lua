-- Sliding window of two counters. The previous window counts by the part of it that a window ending
-- now still covers. A key's windows start with its first charge.
--
-- Limit  0; the limit; ticks in a window; length of a tick; width of a window
-- Cost   units, 0
-- Reply  count of the previous window, count of this one, time since this one started, receipt
-- Value  "start count previous". A key whose windows are empty has no value.
--
-- Time counts in whole ticks, so that limit times ticks stays below 2^50.
--
-- A receipt is the start of the charge's window plus 1. It refunds while that window counts.

--: look
local state = states[key]
if not state then
  local value = values[key] or redis.call('GET', KEYS[key])
  local start, held, previous = now, 0, 0
  if value then
    local s, c, b = string.match(value, '^(%d+) (%d+) (%d+)$')
    start, held, previous = s + 0, c + 0, b + 0
  end
  -- from, used, last and weight: as found now
  state = {start = start, count = held, before = previous, from = 0, used = 0, last = 0, weight = 0}
  states[key] = state
end
local start, held, previous = state.start, state.count, state.before
local width, tick = ARGV[limit + 6] + 0, ARGV[limit + 5] + 0
ARGV[limit + 3], ARGV[limit + 4], ARGV[limit + 5], ARGV[limit + 6] = ARGV[limit + 3] + 0, ARGV[limit + 4] + 0, tick, width
if start > now then
  -- The clock went back. This is kept even if nothing is charged. Otherwise the window would not
  -- end.
  start, state.start, dirty[key] = now, now, limit
elseif now - start >= width then
  if now - start < 2 * width then
    start, previous = start + width, held
    held = 0
  else
    start, held, previous = now, 0, 0
  end
end
if held == 0 and previous == 0 then
  start = now
end
local since = now - start
state.from, state.used, state.last = start, held, previous
state.weight = ARGV[limit + 4] - math.floor((since - since % tick) / tick)
reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = previous, held, since, 0
n = n + 4

--: fits
local state, most, ticks = states[key], ARGV[limit + 3], ARGV[limit + 4]
-- Below a lowered limit, min keeps the product below 2^53.
fits = state.used + whole <= most
  and math.min(state.last, 2 * most) * state.weight + (state.used + whole) * ticks <= most * ticks

--: commit
local state = states[key]
if operation == 'force' then
  local ticks = ARGV[limit + 4]
  local covered = math.min(state.last, 2 * ARGV[limit + 3]) * state.weight + ticks - 1
  whole = math.max(0, math.min(whole, 2 * ARGV[limit + 3] - state.used - math.floor((covered - covered % ticks) / ticks)))
end
state.start, state.count, state.before = state.from, state.used + whole, state.last
receipt = state.start + 1

--: give
local state = states[key]
local held, previous = state.used, state.last
if receipt == state.from + 1 and held > 0 then
  held, given = math.max(0, held - whole), true
elseif receipt == state.from - ARGV[limit + 6] + 1 and previous > 0 then
  previous, given = math.max(0, previous - whole), true
end
if given then
  state.start, state.count, state.before = state.from, held, previous
end

--: store
local state = states[key]
ttl = state.start + 2 * ARGV[limit + 6] - now
if state.count == 0 and state.before == 0 then
  ttl = 0
elseif state.start >= 10000000 and state.count < 2147483648 and state.before < 2147483648 then
  local low = state.start % 10000000
  value = string.format('%d%07d %d %d', (state.start - low) / 10000000, low, state.count, state.before)
else
  value = string.format('%.0f %.0f %.0f', state.start, state.count, state.before)
end
