-- Sliding log: when what was charged, so that any number of windows that end now are counted exactly. It also
-- serves the sliding window of many small ones, where the entries of one small window are one.
--
-- Limit  0; number of windows; length of a tick; most entries; for each window, longest first: limit, how long an entry
--        counts in it
-- Cost   units, 0
-- Reply  for each window: count, time until the cost fits (0 if it does, -1 if never), time until there is more room
--        (0 if there is all); time since the newest entry; time since the tick started; receipt
-- Value  six numbers of 16 digits: entries before the first that counts, entries, total, time of the newest entry,
--        total before it, and how far the log's clock is ahead; then of each entry but the newest, its time
--        and the total before it, of 16 digits each. A log of which nothing counts has no value.
--
-- The totals go on and on, modulo 2^52, so that what an interval holds is the difference of two, found by bisection,
-- and no decision walks the entries. The log's clock does not go back: it is Redis's, ahead by as much as that
-- ever went back. A receipt is the time of the charge's entry, plus 1. At most 1000 entries are rewritten to give it back.
--
-- While its clock is Redis's, a log is kept for 2^22 microseconds after the newest entry at least, and so until their next multiple,
-- whatever limit it is charged by. What is charged and stops to count before that can leave the time to live alone.

--: run
-- Of one window, where the log's clock is Redis's: what look, fits and commit would do, in fewer steps. What is to be written
-- is in states[key], as text: all of the value, or of more than 16 entries the six numbers, and in states[-key] what comes
-- to the end. numbers[key] is until when the key is to be kept, less than 0 if it already is.
local key, whole, windows = ARGV[at] - 1, ARGV[at + 2] + 0, ARGV[limit + 3] + 0
ARGV[limit + 3] = windows
if windows == 1 and whole > 0 and not states[key + 1] then
  local tick, room, most, keep = ARGV[limit + 4] + 0, ARGV[limit + 5] + 0, ARGV[limit + 6] + 0, ARGV[limit + 7] + 0
  ARGV[limit + 4], ARGV[limit + 5], ARGV[limit + 6], ARGV[limit + 7] = tick, room, most, keep
  local sub, format, read, zero = string.sub, string.format, tonumber, '0000000000000000'
  local phase, gone = now % tick, now - keep
  local time = now - phase
  local low, span = time % 10000000, time - time % grace
  local stamp, alone = format('%09d%07d', (time - low) / 10000000, low), nil
  local kept, pieces = time + math.max(keep, grace), {'', '', '', '', '', ''}
  while decided < times do
    key = key + 1
    local text = values[key]
    if states[key] then
      break -- what several charge is read once, into a table
    elseif not text then
      text = redis.call('GETRANGE', KEYS[key], '0', '607')
      values[key] = text
    end
    local entries, newest, total, first, start, before, count = 0, 0, 0, 0, 0, 0, 0
    local block, from, known = text, 97, 0 -- what holds entries, where, and up to which one
    if text ~= '' then
      local counted = 0
      entries = read(sub(text, 1, 32)) -- and those before the first that counts, of which there are none, mostly
      if not entries or sub(text, 81, 96) ~= zero then
        break
      elseif entries > 16 then
        counted, entries = read(sub(text, 1, 16)), read(sub(text, 17, 32))
      end
      newest, first, known = read(sub(text, 49, 64)), entries, entries - 1
      if newest > now then
        break
      end
      if newest > gone then
        if counted >= 16 then
          block = redis.call('GETRANGE', KEYS[key], format('%d', 96 + 32 * counted), format('%d', 351 + 32 * counted))
          from, known = 1 - 32 * counted, math.min(known, counted + 8)
        elseif known > 16 then
          known = 16
        end
        first = counted
        while first < known do
          start = read(sub(block, from + 32 * first, from + 32 * first + 15))
          if start > gone then
            break
          end
          first = first + 1
        end
        if first < known then
          before = read(sub(block, from + 32 * first + 16, from + 32 * first + 31))
        elseif first == entries - 1 then
          start, before = newest, read(sub(text, 65, 80))
        else
          break
        end
        total = read(sub(text, 33, 48))
        count = (total - before) % 4503599627370496
      end
    end
    local verdict, wait, more, receipt, missing = 0, 0, 0, 0, count + whole - most
    if count > most then
      break -- it takes more than the first for more room
    elseif count > 0 then
      more = start + keep - now
    end
    if whole > most then
      verdict, wait = 1, -1
    elseif missing == 1 then
      verdict, wait = 1, more
    elseif missing > 1 then
      local i, reached = first + 1, newest
      while i < known
        and (read(sub(block, from + 32 * i + 16, from + 32 * i + 31)) - before) % 4503599627370496 < missing do
        i = i + 1
      end
      if i < known or i == entries - 1 and (read(sub(text, 65, 80)) - before) % 4503599627370496 >= missing then
        reached = read(sub(block, from + 32 * i - 32, from + 32 * i - 17))
      elseif known < entries - 1 then
        break
      end
      verdict, wait = 1, reached + keep - now
    else
      local left, last, till = entries - first, time, kept
      if left == 0 then
        if not alone then
          low = whole % 10000000
          alone = table.concat({zero, '0000000000000001', format('%09d%07d', (whole - low) / 10000000, low), stamp, zero, zero})
        end
        text = alone
      else
        pieces[2], pieces[4], pieces[6] = stamp, '', ''
        if newest >= time then
          last = newest
          till = last + math.max(keep, grace)
          pieces[2], pieces[3] = sub(text, 49, 96), ''
        elseif left >= room then
          pieces[3] = sub(text, 65, 96) -- what is too much counts for longer than it would
        else
          left = left + 1
          pieces[3], pieces[4], pieces[6] = sub(text, 33, 48), zero, sub(text, 49, 80)
        end
        total = (total + whole) % 4503599627370496
        low = total % 10000000
        if left > 16 then
          if first > 64 and first >= left then
            break -- all is written anew
          end
          pieces[1] = format('%016d%016d%09d%07d', first, left + first, (total - low) / 10000000, low)
          states[-key], pieces[5], pieces[6] = pieces[6], '', ''
        else
          pieces[1] = format('0000000000000000%016d%09d%07d', left, (total - low) / 10000000, low)
          if entries > 17 then
            pieces[5] = redis.call('GETRANGE', KEYS[key], format('%d', 96 + 32 * first), format('%d', 63 + 32 * entries))
          else
            pieces[5] = sub(text, 97 + 32 * first, 64 + 32 * entries)
          end
        end
        text = table.concat(pieces)
      end
      if newest >= span and last + keep <= span + grace then
        till = -till
      end
      states[key], numbers[key], dirty[key], receipt = text, till, limit, last + 1
    end
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = verdict, count, wait, more
    reply[n + 5], reply[n + 6], reply[n + 7] = now - newest, phase, receipt
    n, decided = n + 7, decided + 1
  end
  upto = math.min(times, decided + 1)
end

--: look
if not shared then
  shared = {}
  shared.print = function(one, other) -- %d is of 32 bits where that is a long of C
    local low, rest = one % 10000000, other % 10000000
    return string.format('%09d%07d%09d%07d', (one - low) / 10000000, low, (other - rest) / 10000000, rest)
  end
  -- Of entry i, time and total before.
  shared.entry = function(state, i)
    if i == state.entries - 1 then
      return state.newest, state.prefix
    elseif i == state.entries then
      return 0, state.total
    end
    local entry = state.changed[i]
    if entry then
      return entry[1], entry[2]
    end
    local text, at, sub = state.value, 97 + 32 * i, string.sub
    if i > 15 then
      local key, block = state.key, (i - i % 16) / 16
      text, at = state.blocks[block], 1 + 32 * (i % 16)
      if not text then
        text = redis.call('GETRANGE', KEYS[key], string.format('%d', 96 + 512 * block), string.format('%d', 607 + 512 * block))
        state.blocks[block] = text
      end
    end
    return tonumber(sub(text, at, at + 15)), tonumber(sub(text, at + 16, at + 31))
  end
  -- The first of the entries from low on whose time is after the given one. Those looked for are near low, mostly, or
  -- near the end where the caller says so: so steps double before they are halved.
  shared.after = function(state, low, time, backwards)
    local high, step, entry = low, 1, shared.entry
    if backwards then
      high = state.entries
      while high - step >= low and entry(state, high - step) > time do
        high, step = high - step, step * 2
      end
      low = math.max(low, high - step)
    else
      while high < state.entries and entry(state, high) <= time do
        low, high, step = high + 1, high + step, step * 2
      end
      high = math.min(high, state.entries)
    end
    while low < high do
      local middle = math.floor((low + high) / 2)
      if entry(state, middle) > time then
        high = middle
      else
        low = middle + 1
      end
    end
    return low
  end
  -- The time of the entry with which the entries from first hold so many units, of at most that many there are.
  shared.holding = function(state, first, units)
    local time, base = shared.entry(state, first)
    if units <= 1 then
      return time
    elseif (state.prefix - base) % 4503599627370496 < units then
      return state.newest
    end
    local reached = function(i)
      local _, prefix = shared.entry(state, i + 1)
      return (prefix - base) % 4503599627370496 >= units
    end
    local low, high, step = first, first, 1
    while high < state.entries - 2 and not reached(high) do
      low, high, step = high + 1, high + step, step * 2
    end
    high = math.min(high, state.entries - 2)
    while low < high do
      local middle = math.floor((low + high) / 2)
      if reached(middle) then
        high = middle
      else
        low = middle + 1
      end
    end
    return (shared.entry(state, low))
  end
  -- What no longer counts is not written again, where all is written anew: after a gap, where little counts, and once what does
  -- not is half of all.
  shared.drop = function(state, gap)
    local gone, left = state.first - state.base, state.entries - state.first
    if gap or left <= 16 or gone > 64 and gone >= left then
      state.base, state.anew = state.first, true
      if left == 0 then
        state.total, state.newest, state.prefix = 0, 0, 0
      end
    end
  end
end
local state = states[key]
if not state or numbers[key] then
  local value = state or values[key] or redis.call('GETRANGE', KEYS[key], '0', '607')
  local kept, entries, total, newest, prefix, ahead = 0, 0, 0, 0, 0, 0
  if value ~= '' then
    local sub, read = string.sub, tonumber
    kept, entries = read(sub(value, 1, 16)), read(sub(value, 17, 32))
    total, newest = read(sub(value, 33, 48)), read(sub(value, 49, 64))
    prefix, ahead = read(sub(value, 65, 80)), read(sub(value, 81, 96))
    if not (kept and entries and total and newest and prefix and ahead)
      or math.max(kept, entries, total, newest, prefix, ahead) >= 9007199254740992 then
      error('no state of a sliding log')
    end
  end
  state = {
    key = key, first = kept, entries = entries, total = total, newest = newest, prefix = prefix, ahead = ahead,
    value = value, blocks = {}, -- as read, the first 16 entries at least, and by 16 others
    changed = {}, low = false, -- entries as changed, from low on
    base = 0, anew = false, -- the first that is kept, and whether all of them are written
    live = {0}, from = 0, lead = 0, -- as found: the first that counts, and ahead
  }
  local added = states[-key]
  if added then
    state.value = values[key]
    if added ~= '' then
      state.low = entries - 2
      state.changed[entries - 2] = {tonumber(string.sub(added, 1, 16)), tonumber(string.sub(added, 17, 32))}
    end
  elseif numbers[key] then
    state.anew = true
  end
  states[key], states[-key], numbers[key] = state, nil, nil
end
local windows, tick = ARGV[limit + 3] + 0, ARGV[limit + 4] + 0
ARGV[limit + 3], ARGV[limit + 4] = windows, tick
local first, lead = state.first, state.ahead
local time, back = now + lead, false
if time < state.newest then
  lead, time, back = state.newest - now, state.newest, true -- the clock went back
end
if lead > 0 and now - now % tick > state.newest and shared.after(state, first, time - ARGV[limit + 7]) == state.entries then
  lead, time, first = 0, now, state.entries -- nothing counts that it could speak of, and no receipt does
end
state.lead = lead
for i = 1, windows do
  local most, keep = ARGV[limit + 4 + 2 * i] + 0, ARGV[limit + 5 + 2 * i] + 0
  ARGV[limit + 4 + 2 * i], ARGV[limit + 5 + 2 * i] = most, keep
  first = shared.after(state, first, time - keep, i > 1)
  local count, wait, more = 0, 0, 0
  if first < state.entries then
    local _, prefix = shared.entry(state, first)
    count = (state.total - prefix) % 4503599627370496
  end
  if count > 0 then
    more = shared.holding(state, first, math.max(1, count - most + 1)) + keep - time
  end
  if whole > most then
    wait = -1
  elseif count + whole > most then
    wait = shared.holding(state, first, count + whole - most) + keep - time
  end
  if i == 1 then
    state.from = first
  end
  state.live[i] = count
  reply[n + 1], reply[n + 2], reply[n + 3] = count, wait, more
  n = n + 3
end
if back then
  -- This is kept even if nothing is charged, or the log's clock would stand still.
  state.first, state.ahead, dirty[key] = state.from, lead, limit
  shared.drop(state, false)
end
reply[n + 1], reply[n + 2], reply[n + 3] = time - state.newest, time % tick, 0
n = n + 3

--: fits
fits = true
for i = 1, ARGV[limit + 3] do
  fits = fits and states[key].live[i] + whole <= ARGV[limit + 4 + 2 * i]
end

--: commit
local state, tick = states[key], ARGV[limit + 4]
if operation == 'force' then
  for i = 1, ARGV[limit + 3] do
    whole = math.min(whole, 2 * ARGV[limit + 4 + 2 * i] - state.live[i])
  end
  whole = math.max(0, whole)
end
local time = now + state.lead
time = time - time % tick
receipt = 0
state.first, state.ahead = state.from, state.lead
if whole > 0 then
  if state.first == state.entries then
    state.first, state.entries, state.total, state.prefix, state.changed, state.low = 0, 1, 0, 0, {}, 0
    state.newest, state.base = time, 0
  elseif state.newest < time then
    if state.entries - state.first >= ARGV[limit + 5] + 0 then
      state.newest = time -- what is too much counts for longer than it would
    else
      local last = state.entries - 1
      state.changed[last], state.low = {state.newest, state.prefix}, math.min(state.low or last, last)
      state.entries, state.newest, state.prefix = state.entries + 1, time, state.total
    end
  end
  state.total = (state.total + whole) % 4503599627370496
  receipt = state.newest + 1
end
shared.drop(state, false)

--: give
local state = states[key]
local i = shared.after(state, state.from, receipt - 2, true)
local last = state.entries - 1
if i <= last and shared.entry(state, i) == receipt - 1 and last - i <= 1000 then
  local _, from = shared.entry(state, i)
  local _, to = shared.entry(state, i + 1)
  whole = math.min(whole, (to - from) % 4503599627370496)
  given = whole > 0
  if given then
    state.first, state.ahead = state.from, state.lead
    local rest, empty = {}, (to - from) % 4503599627370496 == whole
    for j = i + 1, last do
      local entered, prefix = shared.entry(state, j)
      rest[#rest + 1] = {entered, (prefix - whole) % 4503599627370496}
    end
    local at = i + 1
    if empty then
      at = i
      if #rest == 0 and i > 0 then
        rest[1], at = {shared.entry(state, i - 1)}, i - 1
      end
    end
    state.total = (state.total - whole) % 4503599627370496
    for j = 1, #rest - 1 do
      state.changed[at + j - 1] = rest[j]
    end
    if #rest > 0 then
      if #rest > 1 or empty then
        state.low = math.min(state.low or at, at)
      end
      state.entries, state.newest, state.prefix = at + #rest, rest[#rest][1], rest[#rest][2]
    elseif empty then
      state.entries = 0
    end
    shared.drop(state, empty)
    if state.first == state.entries then
      state.ahead = 0 -- as if untouched
    end
  end
end

--: store
local state, keep, till, added = states[key], ARGV[limit + 7], numbers[key], states[-key]
if till and not added then
  if till > 0 then
    value, ttl = state, till - now
  elseif #state >= #values[key] then
    redis.call('SETRANGE', KEYS[key], '0', state) -- is cheaper
  else
    redis.call('SET', KEYS[key], state, 'KEEPTTL')
  end
elseif till then
  redis.call('SETRANGE', KEYS[key], '0', state)
  if added ~= '' then
    redis.call('SETRANGE', KEYS[key], string.format('%d', 32 + 32 * tonumber(string.sub(state, 17, 32))), added)
  end
  if till > 0 then
    ttl = till - now
  end
elseif state.first == state.entries then
  ttl = 0
else
  local print = shared.print
  local from, base = state.low or state.entries - 1, state.base
  local text = {
    string.format('%016d%016d', state.first - base, state.entries - base), print(state.total, state.newest), print(state.prefix, state.ahead),
  }
  if state.anew and from > base then
    if from <= 16 then
      text[4] = string.sub(state.value, 97 + 32 * base, 96 + 32 * from)
    else
      text[4] = redis.call('GETRANGE', KEYS[key], string.format('%d', 96 + 32 * base), string.format('%d', 95 + 32 * from))
    end
  end
  for i = math.max(from, base), state.entries - 2 do
    text[#text + 1] = print(shared.entry(state, i))
  end
  -- While the log's clock is ahead, receipts may speak of it.
  ttl = math.max(0, state.newest + keep - state.ahead - now, state.newest + ARGV[limit + 4] - now)
  if state.ahead == 0 then
    ttl = math.max(ttl, state.newest + grace - now)
  end
  if state.anew or state.low == 0 then
    value = table.concat(text)
  else
    redis.call('SETRANGE', KEYS[key], '0', table.concat(text, '', 1, 3))
    if state.low then
      redis.call('SETRANGE', KEYS[key], string.format('%d', 96 + 32 * from), table.concat(text, '', 4))
    end
  end
end
