-- Adds items to a Bloom filter, and tests for them.
--
-- KEYS   filter  hash, see below
--        then for each part that is asked for: its bits of even generations, its bits of odd ones
-- ARGV   operation; shape, as "bits parts hashes window": the bits of a part, the number of parts,
--        the bits of an item, and microseconds or 0; number of the parts asked for; their numbers;
--        then the operation's arguments
--        ask    a to add every item, t to test for every item, or m; for each item: behind m, a or t;
--               if there are several parts, which of them holds it, from 1; its positions there
--        count  nothing; of one part
--        reset  nothing; of no part
--        sweep  nothing; deletes what a reset left of the parts asked for
--        swept  nothing; of no part; all are swept
-- Reply  -1 and four integers: nothing was done, because the filter has that shape; not of reset
--        ask    for each item: 1 if it was there or seems to have been, 0 if not, 2 if the bits are
--               lost, 3 to ask again, because one script makes few parts; after 2 and 3 nothing was
--               added
--        count  bits set in the current generation, and in the one before; -1: lost
--        reset  number of the parts to be swept
--        sweep, swept  0
--
-- A filter with a window has generations: the time divided by the window. Items are added to the
-- current one, and found in it and in the one before. Otherwise all is generation 0. When the clock
-- steps back into the generation before, the last goes on.
--
-- The fields of the hash are shape; generation, the last in which a part was made; for each part and
-- parity "e<part>" or "o<part>", the generation of its bits; and sweep, how many parts a reset has to
-- sweep. A part has one bit behind its last, which is set. So bits, or a hash, that Redis evicted are
-- told from those that never were.
-- With a window every key has a TTL. Otherwise none has: only a reset forgets items.

local most_made = 8 -- parts of a script: Redis clears a MiB for each
local call, operation, shape = redis.call, ARGV[1], ARGV[2]
local behind, hashes, window = string.match(shape, '^(%d+) %d+ (%d+) (%d+)$')
local asked = ARGV[3] + 0
local names = {'shape', 'generation', 'sweep'}
for i = 1, asked do
  names[2 * i + 2], names[2 * i + 3] = 'e' .. ARGV[3 + i], 'o' .. ARGV[3 + i]
end
local marks = call('HMGET', KEYS[1], unpack(names))

if operation == 'reset' then
  local _, parts = string.match(marks[1] or '0 0', '^(%d+) (%d+)')
  parts = math.max(tonumber(parts), tonumber(marks[3] or 0))
  call('DEL', KEYS[1])
  if parts > 0 then
    call('HSET', KEYS[1], 'sweep', string.format('%d', parts))
  end
  return {parts}
elseif operation == 'sweep' then
  for i = 1, asked do
    if not marks[2 * i + 2] and not marks[2 * i + 3] then
      call('DEL', KEYS[2 * i], KEYS[2 * i + 1])
    end
  end
  return {0}
elseif operation == 'swept' then
  call('HDEL', KEYS[1], 'sweep')
  return {0}
elseif marks[1] and marks[1] ~= shape then
  local bits, parts, bits_of_item, micros = string.match(marks[1], '^(%d+) (%d+) (%d+) (%d+)$')
  return {-1, tonumber(bits), tonumber(parts), tonumber(bits_of_item), tonumber(micros)}
end

hashes, window = hashes + 0, window + 0
local generation = 0
if window > 0 then
  generation = math.floor((now - now % window) / window)
  if marks[2] and marks[2] + 0 == generation + 1 then
    generation = generation + 1
  end
end
local mark, mark_before = string.format('%.0f', generation), string.format('%.0f', generation - 1)
local odd = generation % 2

-- Of each part: the key of the bits that items are added to, or nil; that of the generation before,
-- or nil; whether one that must be there is not, or one is there without the hash.
local current, before, lost = {}, {}, {}
for i = 1, asked do
  local now_key, before_key = KEYS[2 * i + odd], KEYS[2 * i + 1 - odd]
  if not marks[1] and not marks[3] then
    lost[i] = call('GETBIT', now_key, behind) == 1 or window > 0 and call('GETBIT', before_key, behind) == 1
  end
  if marks[2 * i + 2 + odd] == mark then
    current[i] = now_key
    lost[i] = call('GETBIT', now_key, behind) == 0
  end
  if window > 0 and marks[2 * i + 3 - odd] == mark_before then
    before[i] = before_key
    lost[i] = lost[i] or call('GETBIT', before_key, behind) == 0
  end
end

if operation == 'count' then
  local reply = {}
  for i, key in ipairs({current[1] or '', before[1] or ''}) do
    reply[i] = lost[1] and -1 or key == '' and 0 or call('BITCOUNT', key) - 1
  end
  return reply
end

local ttl = window > 0 and
  string.format('%.0f', math.ceil(((generation + 2) * window - now) / 1000) + margin)
local changed = {'HSET', KEYS[1], 'shape', shape, 'generation', mark}
local reply, made = {}, 0
local all, at = ARGV[4 + asked], 5 + asked
while at <= #ARGV do
  local does, part = all, 1
  if all == 'm' then
    does, at = ARGV[at], at + 1
  end
  if asked > 1 then
    part, at = ARGV[at] + 0, at + 1
  end
  local first, last = at, at + hashes - 1
  at = at + hashes
  if lost[part] then
    reply[#reply + 1] = 2
  elseif does == 'a' and not current[part] and made == most_made then
    reply[#reply + 1] = 3
  else
    local key, i = current[part], first
    while key and i <= last and call('GETBIT', key, ARGV[i]) == 1 do
      i = i + 1
    end
    local found = i > last
    if does == 'a' and not found then
      if not key then
        key, made = KEYS[2 * part + odd], made + 1
        -- The first command that writes must be one that Redis rejects when its memory is full. The
        -- last bit comes first, so that Redis gets the memory once.
        if call('SETBIT', key, behind, '1') == 1 then
          call('DEL', key) -- of an earlier generation, or not swept yet
          call('SETBIT', key, behind, '1')
        end
        if ttl then
          call('PEXPIRE', key, ttl)
        end
        current[part] = key
        changed[#changed + 1], changed[#changed + 2] = names[2 * part + 2 + odd], mark
      end
      for missing = i, last do
        call('SETBIT', key, ARGV[missing], '1')
      end
    end
    if not found and before[part] then
      found = true
      for j = first, last do
        if call('GETBIT', before[part], ARGV[j]) == 0 then
          found = false
          break
        end
      end
    end
    reply[#reply + 1] = found and 1 or 0
  end
end
if #changed > 6 then
  call(unpack(changed))
  if ttl then -- a second later than the bits, so that no bits are there without the hash
    call('PEXPIRE', KEYS[1], string.format('%.0f', ttl + 1000))
  end
end
return reply
