-- Token bucket. A token is a length of time, the period divided by the rate, and the state is the arrival
-- time: the instant at which the bucket is full again. Taking tokens moves it ahead; it may never be further
-- ahead of now than the capacity, which is the burst's length.
--
-- Limit  capacity in whole microseconds, its part, the denominator of parts, 1 if time refills the bucket or 0
-- Cost   the tokens' length in whole microseconds, its part
-- Reply  backlog (how far ahead the arrival time is), its part, receipt
-- Value  the arrival time where it is whole and nothing was given back, else
--        "arrival part denominator returned"
--
-- A receipt is the arrival time right after a charge, counted as if nothing had ever been given back. What of a charge
-- lies before now has drained, and as much more of it as was given back of others since may have, for that may
-- have let the bucket run full in between. Giving back more would let the same time be used twice.
algorithms.token_bucket = function()
  local longest = 3155760000000000 -- 100 years

  local bucket

  local function limit(at, shadow)
    return {
      algorithm = bucket, shadow = shadow,
      whole = ARGV[at] + 0, part = ARGV[at + 1] + 0, denominator = ARGV[at + 2] + 0,
      start = ARGV[at + 3] == '1' and now or 0, -- where time refills nothing, the clock stands still
    }, at + 4
  end

  local function store(state, key)
    -- Receipts count until arrival + returned, so the state must last until then.
    local ttl, start = longest / 1000, state.dirty.start
    if start > 0 then
      ttl = state.arrival + state.returned - start
      ttl = (ttl - ttl % 1000) / 1000 + 1 + margin
    end
    if state.part == 0 and state.returned == 0 then
      redis.call('SET', KEYS[key], state.arrival, 'PX', ttl)
    else
      redis.call('SET', KEYS[key], string.format('%.0f %.0f %.0f %.0f',
        state.arrival, state.part, state.denominator, state.returned), 'PX', ttl)
    end
  end

  local function load(key)
    local value = redis.call('GET', KEYS[key])
    local arrival, part, denominator, returned = 0, 0, 1, 0
    if value then
      arrival = tonumber(value)
      if not arrival then
        local a, p, d, r = string.match(value, '^(%d+) (%d+) (%d+) (%d+)$')
        arrival, part, denominator, returned = tonumber(a), tonumber(p), tonumber(d), tonumber(r)
      end
    end
    return {
      arrival = arrival, part = part, denominator = denominator, returned = returned, dirty = false,
      backlog = 0, backlog_part = 0, gone = 0, -- as found
    }
  end

  local function look(state, limit, reply, n)
    local whole, part, gone = state.arrival - limit.start, state.part, state.returned
    if part > 0 and state.denominator ~= limit.denominator then
      whole, part = whole + 1, 0
    end
    if gone > 0 and whole + gone + (part > 0 and 1 or 0) <= 0 then
      gone = 0
    end
    if whole < 0 then
      whole, part = 0, 0
    elseif whole > limit.whole or whole == limit.whole and part > limit.part then
      -- Beyond reach: the clock went back, or the limit was lowered.
      gone = math.min(longest, gone + whole - limit.whole + (part > limit.part and 1 or 0))
      whole, part = limit.whole, limit.part
    end
    state.backlog, state.backlog_part, state.gone = whole, part, gone
    reply[n + 1], reply[n + 2], reply[n + 3] = whole, part, 0
    return n + 3
  end

  local function fits(state, limit, whole, part)
    whole, part = state.backlog + whole, state.backlog_part + part
    if part >= limit.denominator then
      whole, part = whole + 1, part - limit.denominator
    end
    return whole < limit.whole or whole == limit.whole and part <= limit.part
  end

  local function keep(state, limit, whole, part, returned)
    state.arrival, state.part, state.denominator = limit.start + whole, part, limit.denominator
    state.returned, state.dirty = returned, limit
  end

  local function commit(state, limit, whole, part)
    whole, part = state.backlog + whole, state.backlog_part + part
    if part >= limit.denominator then
      whole, part = whole + 1, part - limit.denominator
    end
    keep(state, limit, whole, part, state.gone)
    return state.arrival + state.returned
  end

  local function give(state, limit, whole, part, receipt)
    local left = receipt - state.gone - limit.start
    if whole >= left then
      whole, part = left, 0
    end
    if whole > state.backlog or whole == state.backlog and part > state.backlog_part then
      whole, part = state.backlog, state.backlog_part
    end
    if whole < 0 or whole == 0 and part == 0 then
      return false
    end
    local rest, rest_part = state.backlog - whole, state.backlog_part - part
    if rest_part < 0 then
      rest, rest_part = rest - 1, rest_part + limit.denominator
    end
    keep(state, limit, rest, rest_part, math.min(longest, state.gone + whole + (part > 0 and 1 or 0)))
    return true
  end

  bucket = {
    limit = limit, load = load, look = look, fits = fits, commit = commit, give = give, store = store,
  }
  return bucket
end
