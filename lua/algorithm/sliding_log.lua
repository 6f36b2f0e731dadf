-- Sliding log: the times of charges, which count any number of windows exactly. Every window ends
-- now. A sliding window of many buckets is a log too: the charges of one bucket share an entry.
--
-- Limit  denominator 0, because costs have no fraction; number of windows; length of a tick; most entries; for each
--        window, longest first: limit, how long an entry counts in it
-- Cost   units, 0
-- Reply  for each window: count, time until the cost fits (0 if it does, -1 if it never will), time
--        until there is more room (0 if nothing counts); time since the newest entry; time since
--        the tick started; receipt
-- Value  numbers of 16 digits. Six are the head: entries before the first that counts, entries,
--        total, time of the newest entry, total before it, lead of the log's clock. Two follow for
--        each other entry: its time, the total before it. A log with no units has no value.
-- Names  list, windows, tick, capacity, longest, text, first, entries, total, newest, stamp, prefix, sum, ahead, low, added, base, from, lead, life, room, debt
--
-- A total is modulo 2^52 and is never reset while a charge counts. So the units in an interval are
-- the difference of two totals, bisection finds them, and no decision walks the entries.
--
-- The log's clock never goes back. Its lead over Redis's clock is as much as that went back.
--
-- A receipt is the time of the charge's entry plus 1. A refund rewrites at most the 1000 entries behind that.
--
-- Without a lead, a log is kept for at least 2^22 microseconds after its newest entry, whatever
-- limit charges it. A time to live is longer by as much again, so that few charges set one: a SET with
-- a time to live costs more than PTTL and SETRANGE.
--
-- Parsing and printing numbers costs more than the arithmetic. So the state keeps texts that are
-- likely to be stored again as they were read, and one entry is parsed as a rule.
--
-- list                     where the windows of the limit stand in ARGV
-- windows, tick, capacity  of the limit; longest is how long an entry counts in its longest window
-- text                     the head and 16 entries, as read
-- first, entries, total    of the head
-- newest, prefix, ahead    time of the newest entry, the total before it as text, lead of the clock
-- stamp, sum               newest and total as text; sum is false once the total has changed
-- low, added               entries from low on differ from the stored ones; their texts, without the
--                          newest
-- base                     the first entry to write if all entries are written anew, otherwise false
-- from, lead               first and ahead at now
-- life                     how long the state is kept after its newest entry
-- room, debt               the units that fit, and those for which a debt has room

--: search
-- What number reads.
local log = {
  text = text, entries = entries, newest = newest, prefix = prefix, total = total, low = low, added = added,
}

-- number returns the time of entry n / 2 if n is even, and otherwise the total before it.
local function number(n)
  local left, digits, at = 2 * log.entries - n, log.text, 97 + 16 * n
  if left <= 2 then
    return left == 2 and log.newest or tonumber(left == 1 and log.prefix or log.total)
  elseif n >= 2 * log.low then
    digits, at = log.added, 1 + 16 * (n - 2 * log.low)
  elseif n >= 32 then
    local block = (n - n % 16) / 16
    digits, at = log[block], 1 + 16 * (n % 16)
    if not digits then
      digits = redis.call('GETRANGE', KEYS[key], format('%d', 96 + 256 * block), format('%d', 351 + 256 * block))
      log[block] = digits
    end
  end
  return tonumber(sub(digits, at, at + 15))
end

-- search returns the first entry from at on whose time exceeds bound, and that time. With a total, it
-- compares the units between that and the entry instead. It gallops away from at, or from the newest
-- entry if backwards is true, and then bisects.
local function search(at, bound, total, backwards)
  local least, high, step, galloping, found = at, log.entries, 1, true, nil
  if backwards then at = high - 1 end
  while least < high do
    local one = total and (number(2 * at + 1) - total) % 4503599627370496 or number(2 * at)
    if one > bound then
      high, found = at, one
      galloping = galloping and backwards
    else
      least = at + 1
      galloping = galloping and not backwards
    end
    if not galloping then
      at = math.floor((least + high) / 2)
    elseif backwards then
      at = math.max(least, high - step)
    else
      at = math.min(least + step, high) - 1
    end
    step = step * 2
  end
  return least, found
end

--: get
value = redis.call('GETRANGE', KEYS[key], '0', '607')

--: read
text = value
first = 0
ahead = 0
added = ''
base = false
life = 0
if value == '' then
  entries, total, newest, stamp, prefix, sum = 0, 0, 0, '0000000000000000', '0000000000000000', false
else
  local lead_text = sub(value, 81, 96)
  entries = (#value - 64) / 32 -- which costs less than to parse a number
  if entries > 16 then -- otherwise all of them count
    first, entries = tonumber(sub(value, 1, 16)), tonumber(sub(value, 17, 32))
  end
  sum = sub(value, 33, 48)
  stamp = sub(value, 49, 64)
  prefix = sub(value, 65, 80)
  total = tonumber(sum)
  newest = stamp + 0 -- fails if the text is no log
  if lead_text ~= '0000000000000000' then
    ahead = tonumber(lead_text)
  end
  if not (first and entries and total and ahead) then
    error('no state of a sliding log')
  end
end
low = entries > 0 and entries - 1 or 0

--: limit
list, windows, tick, capacity = p + 3, ARGV[p] + 0, ARGV[p + 1] + 0, ARGV[p + 2] + 0
size = 3 + 2 * windows
for at = list, p + size - 1 do
  ARGV[at] = ARGV[at] + 0
end
longest = ARGV[list + 1]

--: look
local clock = now + ahead
from = first
lead = ahead
room = 9007199254740991
debt = room
if clock < newest then
  -- The clock went back. This is kept even if nothing is charged. Otherwise the log's clock would
  -- stand still.
  clock, lead, changed = newest, newest - now, true
elseif lead > 0 and now - now % tick > newest and newest <= clock - longest then
  clock, lead, from = now, 0, entries -- no entry that counts and no receipt has a time after now
end
local start = from -- the first entry that counts in a window
for at = list, list + 2 * windows - 2, 2 do
  local most, width, count, wait, more = ARGV[at], ARGV[at + 1], 0, 0, 0
  if start < entries then
    -- The time of that entry, and the total before it, if they are in what was read: mostly they are.
    local time, before
    if start == entries - 1 then
      time, before = newest, prefix
    elseif start < low and start < 16 then
      local place = 97 + 32 * start
      time, before = sub(text, place, place + 15) + 0, sub(text, place + 16, place + 31)
    end
    count = before and (total - tonumber(before)) % 4503599627370496
    local frees, widens = time, time -- the cost fits, and there is more room, once these do not count
    if not time or time <= clock - width or count + whole > most then
      --= search
      start, widens = search(start, clock - width, nil, at > list)
      frees, count = widens, 0
      if widens then
        before = number(2 * start + 1)
        count = (total - before) % 4503599627370496
      end
      if count + whole > most + 1 then
        local fitting = search(start + 1, count + whole - most - 1, before)
        frees = number(2 * (fitting - 1))
      end
      if count > most then
        local within = search(start + 1, count - most, before)
        widens = number(2 * (within - 1))
      end
    end
    if count > 0 then
      more = widens + width - clock
    end
    if count > 0 and count + whole > most then
      wait = frees + width - clock
    end
  end
  if whole > most then wait = -1 end
  if at == list then from = start end
  if most - count < room then room = most - count end
  if 2 * most - count < debt then debt = 2 * most - count end
  reply[n + 1], reply[n + 2], reply[n + 3] = count, wait, more
  n = n + 3
end
if changed then
  --= keep
end
reply[n + 1], reply[n + 2], reply[n + 3] = clock - newest, clock % tick, 0
n = n + 3

--: fits
fits = whole <= room

--: force
-- A debt is at most each limit once more.
whole = math.max(0, math.min(whole, debt))

--: commit
receipt = 0
if whole > 0 then
  local time = now + lead
  time = time - time % tick
  if from == entries then
    from, entries, low, added, base, total, newest = 0, 0, 0, '', 0, 0, -1
  end
  if newest < time then
    if entries == 0 then
      entries, prefix = 1, '0000000000000000'
    elseif entries - from < capacity then
      added = added .. stamp .. prefix
      entries, prefix = entries + 1, sum
      if not sum then
        prefix = format('%09d%07d', (total - total % 10000000) / 10000000, total % 10000000)
      end
    end -- otherwise the newest entry takes the units, and counts for longer than it would
    newest, stamp = time, format('%09d%07d', (time - time % 10000000) / 10000000, time % 10000000)
  end
  total = (total + whole) % 4503599627370496
  sum = false
  receipt = newest + 1
end
--= keep

--: keep
-- What look found becomes the state. Entries that no longer count are dropped where all entries are
-- written anew: where few count, and once half of them do not count.
first = from
ahead = lead
life = longest
if ahead > 0 then
  life = math.max(longest - ahead, tick)
end
local left, gone = entries - first, first - (base or 0)
if left <= 16 or gone > 64 and gone >= left then
  base = first
end
if left == 0 then
  first, entries, low, total, newest = 0, 0, 0, 0, 0
end

--: give
--= search
local at = search(from, receipt - 2, nil, true)
if at < entries and number(2 * at) == receipt - 1 and entries - at <= 1001 then
  local units = (number(2 * at + 3) - number(2 * at + 1)) % 4503599627370496
  whole = math.min(whole, units)
  given = whole > 0
  if given then
    local start, texts, gap = math.min(low, math.max(at - 1, 0)), {}, whole == units
    for i = start, entries - 1 do
      if i ~= at or not gap then
        newest = number(2 * i)
        local before = (number(2 * i + 1) - (i > at and whole or 0)) % 4503599627370496
        texts[#texts + 1] = format('%09d%07d', (newest - newest % 10000000) / 10000000, newest % 10000000)
        texts[#texts + 1] = format('%09d%07d', (before - before % 10000000) / 10000000, before % 10000000)
      end
    end
    prefix = table.remove(texts) or '0000000000000000'
    stamp = table.remove(texts) or prefix
    added, low, sum = table.concat(texts), start, false
    total = (total - whole) % 4503599627370496
    if gap then
      entries = entries - 1
    end
    --= keep
    if gap then
      base = first
    end
  end
end

--: store
ttl = 0
if entries > 0 then
  if ahead > 0 then -- a receipt is a time of the log's clock
    ttl = math.max(0, newest + life - now)
  else
    ttl = newest + (life < grace and grace or life) - now
    local left = redis.pcall('PTTL', KEYS[key]) -- the user may not use PTTL
    if type(left) == 'number' and (left - margin) * 1000 > ttl then
      ttl = nil
    else
      ttl = ttl + grace
    end
  end
  local start, gone, lead_text, stored, head = base or 0, '0000000000000000', '0000000000000000', '', nil
  if first == start and total < 2147483648 then
    head = format('%016d%016d', entries - start, total)
  else
    gone = format('%016d', first - start)
    head = format('%016d%09d%07d', entries - start, (total - total % 10000000) / 10000000, total % 10000000)
  end
  if ahead > 0 then
    lead_text = format('%09d%07d', (ahead - ahead % 10000000) / 10000000, ahead % 10000000)
  end
  if base then
    if low < base then
      added = sub(added, 1 + 32 * (base - low))
    elseif low > base and low <= 16 then
      stored = sub(text, 97 + 32 * base, 96 + 32 * low)
    elseif low > base then
      stored = redis.call('GETRANGE', KEYS[key], format('%d', 96 + 32 * base), format('%d', 95 + 32 * low))
    end
    value = gone .. head .. stamp .. prefix .. lead_text .. stored .. added
  else
    value, tail, place = gone .. head .. stamp .. prefix .. lead_text, added, format('%d', 96 + 32 * low)
  end
end
