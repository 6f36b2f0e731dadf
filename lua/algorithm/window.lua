-- Fixed window and calendar. Each window has a count of its own. What a debt leaves above the limit is the next
-- window's first count.
--
-- Limit  0; the limit; then either 0, the width of a window, 1 if it starts with its first charge, 0 if all start at
--        multiples of the width since 1970; or 1, start, end, and end of the window after (of a calendar's period now)
-- Cost   units, 0
-- Reply  count, time until the window ends, debt (what of the count goes into the next window), receipt
-- Value  "start end count debt"
--
-- A receipt is the start of the charge's window plus 1. Nothing is given back of another window.

--: look
local state = states[key]
if not state then
  local value = redis.call('GET', KEYS[key])
  state = {start = 0, finish = 0, count = 0, debt = 0, after = 0}
  if value then
    local s, f, c, d = string.match(value, '^(%d+) (%d+) (%d+) (%d+)$')
    state.start, state.finish, state.count, state.debt = tonumber(s), tonumber(f), tonumber(c), tonumber(d)
  end
  states[key] = state
end
ARGV[limit + 3] = ARGV[limit + 3] + 0
local start, finish, after
if ARGV[limit + 4] == '1' then
  start, finish, after = ARGV[limit + 5] + 0, ARGV[limit + 6] + 0, ARGV[limit + 7] + 0
else
  local width = ARGV[limit + 5] + 0
  start = now
  if ARGV[limit + 6] == '0' then
    start = now - now % width
  end
  if state.finish > 0 then
    state.finish = state.start + width
    if state.start > now then
      start = now -- so that it is clamped to what follows
    elseif now < state.finish then
      start = state.start
    elseif state.debt > 0 and now < state.finish + width then
      start = state.finish
    end
  end
  finish, after = start + width, start + 2 * width
end
if state.start > start then
  -- The clock went back. This is kept even if nothing is charged, or the window would not end.
  state.start = start
  dirty[key] = limit
elseif state.start < start then
  if state.finish ~= start then
    state.debt = 0
  end
  state.start, state.count, state.debt = start, state.debt, math.max(0, state.debt - ARGV[limit + 3])
end
state.finish, state.after = finish, after
reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = state.count, finish - now, state.debt, 0
n = n + 4

--: fits
fits = states[key].count + whole <= ARGV[limit + 3]

--: commit
local state, most = states[key], ARGV[limit + 3]
if operation == 'force' then
  whole = math.max(0, math.min(whole, 2 * most - state.count))
  state.debt = state.debt + math.max(0, state.count + whole - math.max(state.count, most))
end
state.count = state.count + whole
receipt = state.start + 1

--: give
local state = states[key]
given = receipt == state.start + 1 and state.count > 0
if given then
  state.count = math.max(0, state.count - whole)
  state.debt = math.min(state.debt, math.max(0, state.count - ARGV[limit + 3]))
end

--: store
local state = states[key]
local ttl = (state.debt > 0 and state.after or state.finish) - now
redis.call('SET', KEYS[key], string.format('%.0f %.0f %.0f %.0f', state.start, state.finish, state.count, state.debt),
  'PX', (ttl - ttl % 1000) / 1000 + 1 + margin)
