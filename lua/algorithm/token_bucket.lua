-- Token bucket, and leaky bucket. A token is a length of time, the period divided by the rate, and the state is the
-- arrival time: the instant at which the bucket is full again. Taking tokens moves it ahead; it may never be further
-- ahead of now than the capacity, which is the burst's length, but by reservations and debts.
--
-- Limit  denominator, 0 if time refills nothing; capacity in whole microseconds, its part; 1 for a queue, else 0; 1 if a
--        token is shorter than a microsecond, else 0
-- Cost   the tokens' length in whole microseconds, its part
-- Reply  backlog (how far ahead the arrival time is), its part, receipt
-- Value  the arrival time; "part denominator" unless it is whole and nothing else is to be known; "returned earliest promised
--        written under" where something was given back or promised, or is forgiven; "forgiven within forgave" where something is
--
-- A bare arrival time is kept for 2^22 microseconds after it is over, and so until their next multiple at least: what moves it
-- between two multiples can leave the time to live alone, which would be half the price of a decision. Keys that were kept
-- until the multiple itself would all expire at once.
--
-- A reservation for later leaves when the arrival time, without the capacity, is reached; in a queue when all
-- before it have leaked. promised is the time when the last one leaves and every debt is paid, 0 if that is over,
-- and written the time when it was written: where the clock is behind that, it went back and they go back with it.
-- Where the last charge is given back whole, that time is again as far ahead as the backlog is above under, the least
-- that it was so promised with: a capacity and what is hidden; in a queue, 0.
--
-- Where the limit was lowered, or the clock went back, more may lie ahead than the capacity. What is beyond it is
-- forgiven: limits of a capacity within the one that forgave it see what is on top, so that no key is locked for longer
-- than an empty bucket takes. Wider ones go on seeing all of it, so that limits that take turns forgive nothing twice.
-- What is forgiven drains first, and of charges that were there then it comes back first: those have receipts up to
-- forgave. Where time refills nothing, nothing is forgiven.
--
-- A receipt is the arrival time right after a charge, rounded up, counted as if nothing had ever been given back. What of
-- a charge lies before now has drained, and as much more of it as was given back of others before it may have, for that
-- may have let the bucket run full in between. Giving back more would let the same time be used twice. What was
-- given back is remembered, up to 100 years of it, and the earliest receipt by which it was: charges before that had
-- not been there in vain. Where nothing was charged since, the bucket has not run full since either, and
-- it is as if the charge had never been. Where time refills nothing, all is given back. While something is promised, only
-- that is given back: what was charged since leaves when it was told to, which may be too soon after what would be charged
-- instead.

--: number
local value = values[key] or redis.call('GET', KEYS[key])
arrival = tonumber(value or 0)
if arrival and not (arrival >= 0 and arrival < 9007199254740992 and arrival % 1 == 0) then
  arrival = nil -- what is no state is refused before others are charged, and not when it cannot be written
end
values[key] = value and (arrival or value)
numbers[key] = arrival

--: run
-- Of arrival times of which nothing else is to be known: what look, fits and commit would do, in fewer steps. First for whole
-- microseconds, then for costs with parts, of one denominator in a script.
local key, whole, capacity = ARGV[at] - 1, ARGV[at + 2] + 0, ARGV[limit + 3] + 0
ARGV[limit + 3] = capacity
while decided < times and whole > 0 and ARGV[at + 3] == '0' and ARGV[limit + 2] > 0 do
  key = key + 1
  local arrival = numbers[key]
  if not arrival and not states[key] then
    --: number
  end
  if not arrival or arrival - now > capacity or parts and parts[key] and parts[key] > 0 then
    break
  end
  local backlog = arrival - now
  if backlog < 0 then
    backlog = 0
  end
  local verdict, receipt = 1, 0
  if backlog + whole <= capacity then
    verdict, receipt = 0, now + backlog + whole
    numbers[key], dirty[key] = receipt, limit
  end
  if brief then
    n = n + 1
    reply[n] = verdict == 0 and 2 + backlog or -2 - backlog
  else
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = verdict, backlog, 0, receipt
    n = n + 4
  end
  decided = decided + 1
end
local part, capacity_part, denominator = ARGV[at + 3] + 0, ARGV[limit + 4] + 0, ARGV[limit + 2]
if part > 0 and not parts then
  parts = {denominator = denominator}
end
while decided < times and part > 0 and denominator == parts.denominator do
  key = key + 1
  local arrival, rest = numbers[key], parts[key] or 0
  if states[key] then
    break
  elseif not arrival then
    --: number
    if not arrival then
      local a, p, d = string.match(values[key], '^(%d+) (%d+) (%d+)$')
      if not a or a + 0 >= 9007199254740992 or d + 0 ~= denominator or p + 0 >= denominator then
        break
      end
      arrival, rest = a + 0, p + 0
      numbers[key], parts[key] = arrival, rest
    end
  end
  local backlog, verdict, receipt = arrival - now, 1, 0
  if backlog >= capacity then
    break
  elseif backlog < 0 then
    backlog, rest = 0, 0
  end
  local sum, more = backlog + whole, rest + part
  if more >= denominator then
    sum, more = sum + 1, more - denominator
  end
  if sum < capacity or sum == capacity and more <= capacity_part then
    verdict, receipt = 0, now + sum + (more > 0 and 1 or 0)
    numbers[key], parts[key], dirty[key] = now + sum, more, limit
  end
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = verdict, backlog, rest, receipt
  n = n + 4
  decided = decided + 1
end

--: look
local state, arrival = states[key], numbers[key]
if not state and not arrival then
  --: number
end
local capacity, start, denominator = ARGV[limit + 3] + 0, now, ARGV[limit + 2]
ARGV[limit + 3] = capacity
if denominator == 0 then
  start, denominator = 0, 1 -- the clock stands still
end
local rest = parts and parts[key] or 0
if arrival and part == 0 and rest == 0 and (operation == 'decide' or operation == 'peek' or operation == 'atmost')
  and (arrival - start <= capacity or ARGV[limit + 2] == 0) then
  -- Nothing but the arrival time is known, or will be: no table is made for that, the dearest part of it all.
  local backlog = arrival - start
  if backlog < 0 then
    backlog = 0
  end
  reply[n + 1], reply[n + 2], reply[n + 3] = backlog, 0, 0
  n = n + 3
else
  if not state then
    state = {
      arrival = arrival or 0, part = rest, denominator = rest > 0 and parts.denominator or 1, returned = 0, earliest = 0, promised = 0, written = 0, under = 0,
      forgiven = 0, within = 0, forgave = 0,
      hidden = 0, waived = 0, gone = 0, promise = 0, -- as found: of the backlog, and of the forgiven what is left
    }
    if not arrival then
      local a, p, d, more = string.match(values[key], '^(%d+) (%d+) (%d+) ?(.*)$')
      state.arrival, state.part, state.denominator = tonumber(a), tonumber(p), tonumber(d)
      if more ~= '' then
        local r, e, t, w, u, f, c, g = string.match(more, '^(%d+) (%d+) (%d+) (%d+) (%d+) ?(%d*) ?(%d*) ?(%d*)$')
        state.returned, state.earliest = tonumber(r), tonumber(e)
        state.promised, state.written, state.under = tonumber(t), tonumber(w), tonumber(u)
        if f ~= '' then
          state.forgiven, state.within, state.forgave = tonumber(f), tonumber(c), tonumber(g)
        end
      end
      if math.max(state.arrival, state.part, state.denominator, state.returned, state.earliest, state.promised, state.written,
        state.under, state.forgiven, state.within, state.forgave) >= 9007199254740992 then
        error('no state of a token bucket')
      end
    end
    states[key], numbers[key] = state, nil
  end
  local promise = state.promised
  if promise > 0 then
    if start < state.written then
      local back = state.written - start
      state.arrival, state.returned = state.arrival - back, math.min(3155760000000000, state.returned + back)
      state.earliest = 0
      promise = promise - back
      state.promised, state.written = promise, start
      dirty[key] = limit
    end
    promise = math.max(0, promise - start)
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
  end
  local hidden, waived, within = 0, 0, 0
  if state.forgiven > 0 and whole > 0 then
    waived, within = math.min(state.forgiven, whole), state.within
    if capacity <= within then
      if whole < state.forgiven then
        whole, part = whole + (part > 0 and 1 or 0), 0 -- none of it is seen
        waived = whole
      end
      hidden = waived
      whole = whole - hidden
    end
  end
  if whole > capacity + promise + 1 and (whole > within + promise + 2 or capacity >= within) and ARGV[limit + 2] > 0 then
    -- More is beyond reach than what is rounded between two limits. This is kept even if nothing is charged, or it would
    -- not drain.
    local reach, reach_part = within + promise + 1, 0 -- with what is not known of its capacity
    if capacity >= within then
      within, reach, reach_part = capacity, capacity + promise, ARGV[limit + 4] + 0
    end
    hidden = hidden + whole - reach + (part > reach_part and 1 or 0)
    waived, whole, part = hidden, reach, reach_part
    state.arrival, state.part, state.denominator, state.returned = start + hidden + whole, part, denominator, gone
    state.forgiven, state.within, state.forgave = waived, within, start + hidden + whole + (part > 0 and 1 or 0) + gone
    if gone == 0 then
      state.earliest = 0
    end
    dirty[key] = limit
  end
  state.gone, state.promise, state.hidden, state.waived = gone, promise, hidden, waived
  reply[n + 1], reply[n + 2], reply[n + 3] = whole, part, 0
  n = n + 3
end

--: fits
local backlog, backlog_part = reply[found - 2], reply[found - 1]
local sum, rest, denominator, reach = backlog + whole, backlog_part + part, ARGV[limit + 2], ARGV[limit + 3]
fits = true
if operation == 'reserve' then
  local capacity_part = ARGV[limit + 4] + 0
  if ARGV[limit + 5] == '1' then
    fits = backlog < bound or backlog == bound and backlog_part == 0
  elseif denominator > 0 then
    fits = whole < reach or whole == reach and part <= capacity_part
    reach = reach + bound
  end
end
if rest > 0 and rest >= denominator then
  sum, rest = sum + 1, rest - denominator
end
fits = fits and (sum < reach or sum == reach and rest <= ARGV[limit + 4] + 0)

--: commit
local backlog, backlog_part = reply[found - 2], reply[found - 1]
local state, denominator, start = states[key], ARGV[limit + 2], now
if denominator == 0 then
  start, denominator = 0, 1
end
if not state then
  receipt = start + backlog + whole
  numbers[key] = receipt
else
  local capacity, capacity_part, promise = ARGV[limit + 3], ARGV[limit + 4] + 0, state.promise
  if operation == 'force' then
    -- At most as much again as the capacity, and 10 years of it.
    local room, rest = capacity + math.min(capacity, 315576000000000) - backlog, capacity_part - backlog_part
    if rest < 0 then
      room, rest = room - 1, rest + denominator
    end
    if room < 0 then
      whole, part = 0, 0
    elseif whole > room or whole == room and part > rest then
      whole, part = room, rest
    end
  end
  local sum, rest = backlog + whole, backlog_part + part
  if rest >= denominator then
    sum, rest = sum + 1, rest - denominator
  end
  local under = state.hidden + capacity
  if promise > 0 then
    under = math.min(under, state.under)
  end
  if operation == 'reserve' and ARGV[limit + 5] == '1' and (backlog > 0 or backlog_part > 0) then
    promise, under = math.max(promise, backlog + (backlog_part > 0 and 1 or 0)), 0
  end
  promise = math.max(promise, sum - capacity + (rest > capacity_part and 1 or 0))
  state.arrival, state.part, state.denominator, state.returned = start + state.hidden + sum, rest, denominator, state.gone
  state.promised, state.written, state.under, state.forgiven = 0, 0, 0, state.waived
  if state.gone == 0 then
    state.earliest = 0
  end
  if promise > 0 then
    state.promised, state.written, state.under = start + promise, start, under
  end
  receipt = state.arrival + (rest > 0 and 1 or 0) + state.gone
end

--: give
local state, denominator, start = states[key], ARGV[limit + 2], now
if denominator == 0 then
  start, denominator = 0, 1
end
local backlog, backlog_part = state.hidden + reply[n + 1], reply[n + 2] -- what look left there
local since = start + backlog + state.gone - receipt
if backlog_part > 0 then
  since = since + 1
end
if ARGV[limit + 6] == '1' then
  since = since + 1 -- there may be more than can be seen
end
local left, frozen = receipt - start, ARGV[limit + 2] == 0
if state.gone > 0 and receipt >= state.earliest then
  left = left - state.gone
end
if since ~= 0 and denominator > 1 then
  left = left - 1 -- by which it may have been rounded up
end
if state.promise > 0 and since ~= 0 then
  left = 0
end
local above = 0 -- what of the charge lies above the forgiven
if receipt > state.forgave then
  above = math.max(0, left - state.waived)
end
if whole >= left and not frozen then
  whole, part = left, 0
end
if whole > backlog or whole == backlog and part > backlog_part then
  whole, part = backlog, backlog_part
end
given = whole > 0 or whole == 0 and part > 0
if given then
  local rest, rest_part = backlog - whole, backlog_part - part
  if rest_part < 0 then
    rest, rest_part = rest - 1, rest_part + denominator
  end
  state.forgiven = math.max(0, state.waived - math.max(0, whole + (part > 0 and 1 or 0) - above))
  state.arrival, state.part, state.denominator, state.returned = start + rest, rest_part, denominator, state.gone
  if state.gone == 0 then
    state.earliest = 0
  end
  if since ~= 0 and not frozen then
    state.returned = math.min(3155760000000000, state.gone + whole + (part > 0 and 1 or 0))
    state.earliest = state.gone > 0 and math.min(state.earliest, receipt) or receipt
  end
  local promise = state.promise
  if since == 0 and bound > 0 then
    promise = math.min(promise, math.max(0, rest + (rest_part > 0 and 1 or 0) - state.under)) -- as before the charge
  else
    state.under = math.max(0, state.under - whole - (part > 0 and 1 or 0)) -- the rest of the charge leaves when it was told to
  end
  if promise == 0 then
    state.promised, state.written, state.under = 0, 0, 0
  else
    state.promised, state.written = start + promise, start
  end
end

--: store
local state, arrival, rest, denominator = states[key], numbers[key], 0, 1
if arrival and parts and parts[key] then
  rest, denominator = parts[key], parts.denominator
elseif not arrival and state.returned == 0 and state.promised == 0 and state.forgiven == 0 then
  arrival, rest, denominator = state.arrival, state.part, state.denominator
end
if ARGV[limit + 2] == 0 then
  ttl = 3155760000000000 -- 100 years
elseif arrival and rest == 0 then
  local before = tonumber(values[key])
  ttl = arrival + grace - now
  if before and before >= arrival - arrival % grace and before < arrival
    and redis.pcall('INCRBY', KEYS[key], string.format('%d', arrival - before)) == arrival then
    ttl = nil
  end -- else it may not, or what it read as a number is none to Redis
else
  -- Receipts count until arrival + returned, so the state must last until then.
  ttl = (arrival or math.max(state.arrival + state.returned, state.promised)) - now
end
if not ttl then
elseif rest > 0 and arrival >= 10000000 and denominator < 2147483648 then
  local low = arrival % 10000000
  value = string.format('%d%07d %d %d', (arrival - low) / 10000000, low, rest, denominator)
elseif rest > 0 then
  value = string.format('%.0f %.0f %.0f', arrival, rest, denominator)
elseif arrival and arrival >= 10000000 then
  local low = arrival % 10000000
  value = string.format('%d%07d', (arrival - low) / 10000000, low)
elseif arrival then
  value = string.format('%d', arrival)
elseif state.forgiven == 0 then
  value = string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f', state.arrival, state.part, state.denominator,
    state.returned, state.earliest, state.promised, state.written, state.under)
else
  value = string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f', state.arrival, state.part,
    state.denominator, state.returned, state.earliest, state.promised, state.written, state.under,
    state.forgiven, state.within, state.forgave)
end
