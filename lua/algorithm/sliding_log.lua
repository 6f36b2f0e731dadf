-- Sliding log: the times of charges, which count any number of windows exactly. Every window ends
-- now. A sliding window of many buckets is a log too: the charges of one bucket share an entry.
--
-- Limit  0; number of windows; length of a tick; most entries; for each window, longest first:
--        limit, how long an entry counts in it
-- Cost   units, 0
-- Reply  for each window: count, time until the cost fits (0 if it does, -1 if it never will), time
--        until there is more room (0 if nothing counts); time since the newest entry; time since
--        the tick started; receipt
-- Value  numbers of 16 digits. Six are the head: entries before the first that counts, entries,
--        total, time of the newest entry, total before it, lead of the log's clock. Two follow for
--        each other entry: its time, the total before it. A log with no units has no value.
--
-- A total is modulo 2^52 and is never reset while a charge counts. So the units in an interval are
-- the difference of two totals, bisection finds them, and no decision walks the entries.
--
-- The log's clock never goes back. Its lead over Redis's clock is as much as that went back.
--
-- A receipt is the time of the charge's entry plus 1. A refund rewrites at most 1000 entries.
--
-- Without a lead, a log is kept for at least 2^22 microseconds after its newest entry, whatever
-- limit charges it. So the key outlives the next multiple of 2^22, and an entry that stops counting
-- before that multiple leaves the time to live alone.
--
-- Parsing and printing numbers costs more than the arithmetic. So the state keeps texts that are
-- likely to be stored again as they were read, and at most two entries are parsed as a rule.
--
-- first, entries, total, time, prefix, ahead  the head, time being that of the newest entry
-- stamp, sum       time and total as text; sum is nil once the total has changed
-- value, blocks    the text as read: the head and 16 entries; further blocks of 8 entries
-- low, added       entries from low on differ from the stored ones; their texts, without the newest
-- base             the first entry to write, if all entries are written anew
-- from, lead       first and ahead as look found them
-- before           time as read, 0 with a lead: the key lives for 2^22 microseconds after its span

--: look
if not number then
  sub = string.sub
  print16 = function(one) -- %d may be of 32 bits
    return string.format('%09d%07d', (one - one % 10000000) / 10000000, one % 10000000)
  end
  -- number returns the time of entry n / 2 if n is even, and otherwise the total before it.
  number = function(state, n)
    local left, added, value, from = 2 * state.entries - n, state.added, state.value, 97 + 16 * n
    if left <= 2 then
      return left == 2 and state.time or left == 1 and tonumber(state.prefix) or state.total
    elseif added and n >= 2 * state.low then
      return tonumber(added[n - 2 * state.low + 1])
    elseif n >= 32 then
      local key, block = state.key, (n - n % 16) / 16
      from = 1 + 16 * (n % 16)
      state.blocks = state.blocks or {}
      value = state.blocks[block]
      if not value then
        value = redis.call('GETRANGE', KEYS[key],
          string.format('%d', 96 + 256 * block), string.format('%d', 351 + 256 * block))
        state.blocks[block] = value
      end
    end
    return tonumber(sub(value, from, from + 15))
  end
  -- search returns the first entry from low on whose time exceeds bound, and that time. With a
  -- base, it compares the units between base and the entry instead. It gallops away from low, or
  -- from the newest entry if backwards is true, and then bisects.
  search = function(state, low, bound, base, backwards)
    local high, step, at, galloping, found = state.entries, 1, low, true, nil
    if backwards then at = high - 1 end
    while low < high do
      local one = base and (number(state, 2 * at + 1) - base) % 4503599627370496 or number(state, 2 * at)
      if one > bound then
        high, found = at, one
        galloping = galloping and backwards
      else
        low = at + 1
        galloping = galloping and not backwards
      end
      if not galloping then
        at = math.floor((low + high) / 2)
      elseif backwards then
        at = math.max(low, high - step)
      else
        at = math.min(low + step, high) - 1
      end
      step = step * 2
    end
    return low, found
  end
  -- keep makes what look found the state. It drops the entries that no longer count where all
  -- entries are written anew: where few count, after a gap, and once half of them do not count.
  keep = function(state, gap)
    local first = state.from
    local gone, left = first - (state.base or 0), state.entries - first
    state.first, state.ahead = first, state.lead
    if gap or left <= 16 or gone > 64 and gone >= left then
      state.base = first
    end
    if left == 0 then
      state.first, state.entries, state.low, state.total, state.time = 0, 0, 0, 0, 0
    end
  end
end
local state = states[key]
if not state then
  local value, zero = values[key] or redis.call('GETRANGE', KEYS[key], '0', '607'), '0000000000000000'
  local first, entries, sum, stamp, prefix, ahead = 0, 0, zero, zero, zero, zero
  if value ~= '' then
    entries = tonumber(sub(value, 1, 32)) -- the first of the two is mostly 0
    if entries and entries > 16 then
      first, entries = tonumber(sub(value, 1, 16)), tonumber(sub(value, 17, 32))
    end
    sum, stamp, prefix, ahead = sub(value, 33, 48), sub(value, 49, 64), sub(value, 65, 80), sub(value, 81, 96)
  end
  local total, time = tonumber(sum), tonumber(stamp)
  ahead = ahead == zero and 0 or tonumber(ahead)
  if not (first and entries and total and time and ahead) then
    error('no state of a sliding log')
  end
  state = {
    key = key, value = value, first = first, entries = entries, time = time, stamp = stamp, prefix = prefix,
    total = total, sum = sum, ahead = ahead, from = first, lead = ahead, before = ahead == 0 and time or 0,
  }
  states[key] = state
end
local windows, tick, longest = ARGV[limit + 3] + 0, ARGV[limit + 4] + 0, ARGV[limit + 7] + 0
local first, lead, entries, newest, back = state.first, state.ahead, state.entries, state.time, false
local time = now + lead
ARGV[limit + 3], ARGV[limit + 4], ARGV[limit + 5] = windows, tick, ARGV[limit + 5] + 0
if time < newest then
  lead, time, back = newest - now, newest, true -- the clock went back
elseif lead > 0 and now - now % tick > newest and newest <= time - longest then
  lead, time, first = 0, now, entries -- no entry that counts and no receipt has a time after now
end
for i = 1, windows do
  local most, width = ARGV[limit + 4 + 2 * i] + 0, ARGV[limit + 5 + 2 * i] + 0
  local count, wait, more, oldest = 0, 0, 0, nil
  ARGV[limit + 4 + 2 * i], ARGV[limit + 5 + 2 * i] = most, width
  if first < entries then
    oldest = number(state, 2 * first)
    if oldest <= time - width and first < entries - 1 then
      first = first + 1
      oldest = number(state, 2 * first)
    end
    if oldest <= time - width then
      first, oldest = search(state, first + 1, time - width, nil, i > 1)
    end
  end
  if oldest then
    local base = number(state, 2 * first + 1)
    count = (state.total - base) % 4503599627370496
    local missing, full = count + whole - most, oldest
    if count > most then
      full = number(state, 2 * search(state, first + 1, count - most, base) - 2)
    end
    more = full + width - time
    if missing > 1 then
      oldest = number(state, 2 * search(state, first + 1, missing - 1, base) - 2)
    end
    wait = missing > 0 and oldest + width - time or 0
  end
  if whole > most then wait = -1 end
  if i == 1 then state.from = first end
  reply[n + 1], reply[n + 2], reply[n + 3] = count, wait, more
  n = n + 3
end
state.lead = lead
if back then
  -- This is kept even if nothing is charged. Otherwise the log's clock would stand still.
  dirty[key] = limit
  keep(state)
end
reply[n + 1], reply[n + 2], reply[n + 3] = time - newest, time % tick, 0
n = n + 3

--: fits
local windows = ARGV[limit + 3]
fits = true
for i = 1, windows do
  fits = fits and reply[found - 5 - 3 * (windows - i)] + whole <= ARGV[limit + 4 + 2 * i]
end

--: force
local windows = ARGV[limit + 3]
for i = 1, windows do
  whole = math.min(whole, 2 * ARGV[limit + 4 + 2 * i] - reply[found - 5 - 3 * (windows - i)])
end
whole = math.max(0, whole)

--: commit
local state = states[key]
receipt = 0
if whole > 0 then
  local time, entries = now + state.lead, state.entries
  time = time - time % ARGV[limit + 4]
  if state.from == entries then
    entries, state.from, state.base, state.low, state.added, state.total, state.time = 0, 0, 0, 0, {}, 0, -1
  end
  if state.time < time then
    if entries == 0 then
      state.entries, state.prefix = 1, '0000000000000000'
    elseif entries - state.from < ARGV[limit + 5] then
      if state.added then
        state.added[#state.added + 1] = state.stamp
        state.added[#state.added + 1] = state.prefix
      else
        state.low, state.added = entries - 1, {state.stamp, state.prefix}
      end
      state.entries, state.prefix = entries + 1, state.sum or print16(state.total)
    end -- otherwise the newest entry takes the units, and counts for longer than it would
    if stamped ~= time then
      stamped, stamp = time, print16(time)
    end
    state.time, state.stamp = time, stamp
  end
  state.total, state.sum = (state.total + whole) % 4503599627370496, nil
  receipt = state.time + 1
end
keep(state)

--: give
local state = states[key]
local entries, at = state.entries, search(state, state.from, receipt - 2, nil, true)
if at < entries and number(state, 2 * at) == receipt - 1 and entries - at <= 1001 then
  local units = (number(state, 2 * at + 3) - number(state, 2 * at + 1)) % 4503599627370496
  whole = math.min(whole, units)
  given = whole > 0
  if given then
    local low, added, gap, time = math.min(state.low or at, math.max(at - 1, 0)), {}, whole == units, nil
    for i = low, entries - 1 do
      if i ~= at or not gap then
        time = number(state, 2 * i)
        added[#added + 1] = print16(time)
        added[#added + 1] = print16((number(state, 2 * i + 1) - (i > at and whole or 0)) % 4503599627370496)
      end
    end
    state.prefix = table.remove(added)
    state.stamp = table.remove(added)
    state.time, state.low, state.added, state.entries = time, low, added, gap and entries - 1 or entries
    state.total, state.sum = (state.total - whole) % 4503599627370496, nil
    keep(state, gap)
  end
end

--: store
local state, longest = states[key], ARGV[limit + 7]
local entries, time, ahead, total, base = state.entries, state.time, state.ahead, state.total, state.base
ttl = 0
if entries > 0 then
  local first, left, span, added = state.first, entries, time - time % grace, state.added
  if base then
    first, left = first - base, entries - base
  end
  local head = string.format('%016d%016d%09d%07d', first, left, (total - total % 10000000) / 10000000, total % 10000000)
  local lead = ahead == 0 and '0000000000000000' or print16(ahead)
  if ahead > 0 then -- a receipt is a time of the log's clock
    ttl = math.max(0, time + math.max(longest - ahead, ARGV[limit + 4]) - now)
  elseif state.before >= span and time + longest <= span + grace then
    ttl = nil
  else
    ttl = time + math.max(longest, grace) - now
  end
  if base then
    local low, stored, rest = added and state.low or entries - 1, '', ''
    if low > base and low <= 16 then
      stored = string.sub(state.value, 97 + 32 * base, 96 + 32 * low)
    elseif low > base then
      stored = redis.call('GETRANGE', KEYS[key], string.format('%d', 96 + 32 * base), string.format('%d', 95 + 32 * low))
    end
    if added then
      rest = table.concat(added, '', low < base and 2 * (base - low) + 1 or 1)
    end
    value = table.concat({head, state.stamp, state.prefix, lead, stored, rest})
    if not ttl and #value >= #state.value and #value < 608 then
      redis.call('SETRANGE', KEYS[key], '0', value) -- costs less
      value = nil
    end
  else
    redis.call('SETRANGE', KEYS[key], '0', table.concat({head, state.stamp, state.prefix, lead}))
    if added then
      redis.call('SETRANGE', KEYS[key], string.format('%d', 96 + 32 * state.low), table.concat(added))
    end
  end
end
