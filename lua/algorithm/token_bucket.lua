-- Token bucket. A token is a length of time, the period divided by the rate, and the state is the arrival
-- time: the instant at which the bucket is full again. Taking tokens moves it ahead; it may never be further
-- ahead of now than the capacity, which is the burst's length.
--
-- Limit  denominator, 0 if time refills nothing; capacity in whole microseconds, its part
-- Cost   the tokens' length in whole microseconds, its part
-- Reply  backlog (how far ahead the arrival time is), its part, receipt
-- Value  the arrival time where it is whole and nothing was given back, else
--        "arrival part denominator returned"
--
-- A receipt is the arrival time right after a charge, counted as if nothing had ever been given back. What of a charge
-- lies before now has drained, and as much more of it as was given back of others since may have, for that may
-- have let the bucket run full in between. Giving back more would let the same time be used twice. What was given back
-- is remembered up to 100 years of it.

--: look
local state = states[key]
if not state then
  local value = redis.call('GET', KEYS[key])
  local arrival, part, denominator, returned = 0, 0, 1, 0
  if value then
    arrival = tonumber(value)
    if not arrival then
      local a, p, d, r = string.match(value, '^(%d+) (%d+) (%d+) (%d+)$')
      arrival, part, denominator, returned = tonumber(a), tonumber(p), tonumber(d), tonumber(r)
    end
  end
  state = {
    arrival = arrival, part = part, denominator = denominator, returned = returned,
    backlog = 0, backlog_part = 0, gone = 0, -- as found
  }
  states[key] = state
end
local capacity, start, denominator = ARGV[limit + 3] + 0, now, ARGV[limit + 2]
ARGV[limit + 3] = capacity
if denominator == 0 then
  start, denominator = 0, 1 -- the clock stands still
end
local whole, part, gone = state.arrival - start, state.part, state.returned
if part > 0 and state.denominator ~= denominator then
  whole, part = whole + 1, 0
end
if gone > 0 and whole + gone + (part > 0 and 1 or 0) <= 0 then
  gone = 0
end
if whole < 0 then
  whole, part = 0, 0
elseif whole >= capacity then
  local capacity_part = ARGV[limit + 4] + 0
  if whole > capacity or part > capacity_part then
    -- Beyond reach: the clock went back, or the limit was lowered. This is kept even if nothing is charged, or it
    -- would not drain.
    gone = math.min(3155760000000000, gone + whole - capacity + (part > capacity_part and 1 or 0))
    whole, part = capacity, capacity_part
    state.arrival, state.part, state.denominator, state.returned = start + whole, part, denominator, gone
    dirty[key] = limit
  end
end
state.backlog, state.backlog_part, state.gone = whole, part, gone
reply[n + 1], reply[n + 2], reply[n + 3] = whole, part, 0
n = n + 3

--: fits
local state, denominator = states[key], ARGV[limit + 2]
local sum, rest, capacity = state.backlog + whole, state.backlog_part + part, ARGV[limit + 3]
if rest > 0 and rest >= denominator then
  sum, rest = sum + 1, rest - denominator
end
fits = sum < capacity or sum == capacity and rest <= ARGV[limit + 4] + 0

--: commit
local state, denominator, start = states[key], ARGV[limit + 2], now
if denominator == 0 then
  start, denominator = 0, 1
end
local sum, rest = state.backlog + whole, state.backlog_part + part
if rest >= denominator then
  sum, rest = sum + 1, rest - denominator
end
state.arrival, state.part, state.denominator, state.returned = start + sum, rest, denominator, state.gone
receipt = state.arrival + state.gone

--: give
local state, denominator, start = states[key], ARGV[limit + 2], now
if denominator == 0 then
  start, denominator = 0, 1
end
local left = receipt - state.gone - start
if whole >= left then
  whole, part = left, 0
end
if whole > state.backlog or whole == state.backlog and part > state.backlog_part then
  whole, part = state.backlog, state.backlog_part
end
given = whole > 0 or whole == 0 and part > 0
if given then
  local rest, rest_part = state.backlog - whole, state.backlog_part - part
  if rest_part < 0 then
    rest, rest_part = rest - 1, rest_part + denominator
  end
  state.arrival, state.part, state.denominator = start + rest, rest_part, denominator
  state.returned = math.min(3155760000000000, state.gone + whole + (part > 0 and 1 or 0))
end

--: store
local state, ttl = states[key], 3155760000000 -- 100 years
if ARGV[limit + 2] > 0 then
  -- Receipts count until arrival + returned, so the state must last until then.
  ttl = state.arrival + state.returned - now
  ttl = (ttl - ttl % 1000) / 1000 + 1 + margin
end
if state.part == 0 and state.returned == 0 then
  redis.call('SET', KEYS[key], state.arrival, 'PX', ttl)
else
  redis.call('SET', KEYS[key], string.format('%.0f %.0f %.0f %.0f',
    state.arrival, state.part, state.denominator, state.returned), 'PX', ttl)
end
