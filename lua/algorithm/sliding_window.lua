-- Sliding window of two counters: what was charged in the window before counts by the part of it that a window ending
-- now still covers. A key's windows start with its first charge.
--
-- Limit  0; the limit; ticks in a window, length of a tick; width of a window
-- Cost   units, 0
-- Reply  count of the window before, count of this one, time since this one started, receipt
-- Value  "start count before"
--
-- Time counts in whole ticks, so that limit times ticks stays below 2^50. A receipt is the start of the charge's window
-- plus 1. It gives back as long as that window counts.

--: look
local state = states[key]
if not state then
  local value = redis.call('GET', KEYS[key])
  state = {start = now, count = 0, before = 0, weight = 0}
  if value then
    local s, c, b = string.match(value, '^(%d+) (%d+) (%d+)$')
    state.start, state.count, state.before = tonumber(s), tonumber(c), tonumber(b)
  end
  states[key] = state
end
local most, width, tick = ARGV[limit + 3] + 0, ARGV[limit + 6] + 0, ARGV[limit + 5] + 0
ARGV[limit + 3], ARGV[limit + 4] = most, ARGV[limit + 4] + 0
if state.start > now then
  -- The clock went back. This is kept even if nothing is charged, or the window would not end.
  state.start = now
  dirty[key] = limit
elseif now - state.start >= width then
  if now - state.start < 2 * width then
    state.start, state.count, state.before = state.start + width, 0, state.count
  else
    state.start, state.count, state.before = now, 0, 0
  end
end
if state.count == 0 and state.before == 0 then
  state.start = now
end
-- After a lowered limit, no product may leave the integers.
state.count, state.before = math.min(state.count, 2 * most), math.min(state.before, 2 * most)
local since = now - state.start
state.weight = ARGV[limit + 4] - (since - since % tick) / tick
reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = state.before, state.count, since, 0
n = n + 4

--: fits
local state, most, ticks = states[key], ARGV[limit + 3], ARGV[limit + 4]
fits = whole <= most and state.before * state.weight + (state.count + whole) * ticks <= most * ticks

--: commit
local state = states[key]
if operation == 'force' then
  local ticks = ARGV[limit + 4]
  local covered = state.before * state.weight + ticks - 1
  whole = math.max(0, math.min(whole, 2 * ARGV[limit + 3] - state.count - (covered - covered % ticks) / ticks))
end
state.count = state.count + whole
receipt = state.start + 1

--: give
local state = states[key]
if receipt == state.start + 1 and state.count > 0 then
  state.count, given = math.max(0, state.count - whole), true
elseif receipt == state.start - ARGV[limit + 6] + 1 and state.before > 0 then
  state.before, given = math.max(0, state.before - whole), true
end

--: store
local state = states[key]
local ttl = state.start + 2 * ARGV[limit + 6] - now
redis.call('SET', KEYS[key], string.format('%.0f %.0f %.0f', state.start, state.count, state.before),
  'PX', (ttl - ttl % 1000) / 1000 + 1 + margin)
