-- Adds items to a Bloom filter, and tests for them.
--
-- KEYS   filter  hash, see below
--        then for each part that is asked for: its bits of even generations, its bits of odd ones
-- ARGV   operation; shape, as "bits blocks parts hashes window": the bits of a block, the blocks of a
--        part, the number of parts, the bits of an item, and microseconds or 0; number of the parts
--        asked for; their numbers; then the operation's arguments
--        ask    places; for each item: first and last byte of its block. The places of an item are
--               bytes: 1 to add it, or 0; which of the parts holds it, from 1, in two bytes; for each
--               of its bits which byte of the block holds it, from 1, in two bytes, and its value
--               there; the last bit is repeated up to a whole step
--        begin  1 to make the record, or 0; of all parts
--        count  nothing; of one part
--        reset  nothing; of no part
--        sweep  nothing; deletes what a reset left of the parts asked for
--        swept  nothing; of no part; all are swept
-- Reply  -1 and five integers: nothing was done, because the filter has that shape; not of reset
--        ask    for each item: 1 if it was there or seems to have been, 0 if not, 2 if the bits are
--               lost, 3 to ask again, because one script makes few parts, 4 to begin, because there is
--               no record; after 2, 3 and 4 nothing was added
--        begin  1 if there are bits without the record, which is lost; otherwise 0
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
-- sweep. A part has one bit behind its last, which is set, so that all its blocks are there. So bits,
-- or a hash, that Redis evicted are told from those that never were. Without the hash, the record,
-- nobody knows which parts there were, so the bits of any part say that the filter is lost.
-- With a window every key has a TTL. Otherwise none has: only a reset forgets items.

local step = 3 -- bits of an item that are looked at together
local most_made = 8 -- parts of a script: Redis clears a MiB for each
local call, operation, shape = redis.call, ARGV[1], ARGV[2]
local bits, blocks, hashes, window = string.match(shape, '^(%d+) (%d+) %d+ (%d+) (%d+)$')
local behind = bits * blocks
local asked = ARGV[3] + 0
local names = {'shape', 'generation', 'sweep'}
for i = 1, asked do
  names[2 * i + 2], names[2 * i + 3] = 'e' .. ARGV[3 + i], 'o' .. ARGV[3 + i]
end
local marks = call('HMGET', KEYS[1], unpack(names))

if operation == 'reset' then
  local parts = string.match(marks[1] or '0 0 0', '^%d+ %d+ (%d+)')
  parts = math.max(tonumber(parts), tonumber(marks[3] or 0))
  local left = call('PTTL', KEYS[1])
  call('DEL', KEYS[1])
  if parts > 0 then
    call('HSET', KEYS[1], 'sweep', string.format('%d', parts))
  end
  if parts > 0 and left > 0 then -- it outlives the bits
    call('PEXPIRE', KEYS[1], string.format('%.0f', left))
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
  local other = {-1}
  for number in string.gmatch(marks[1], '%d+') do
    other[#other + 1] = tonumber(number)
  end
  return other
end

hashes, window = hashes + 0, window + 0
local now, margin
local generation, mark, mark_before = 0, '0', nil
if window > 0 then
  now, margin = clock()
  generation = math.floor((now - now % window) / window)
  if marks[2] and marks[2] + 0 == generation + 1 then
    generation = generation + 1
  end
  mark, mark_before = string.format('%.0f', generation), string.format('%.0f', generation - 1)
end
local odd = generation % 2

-- Of each part: the key of the bits that items are added to, or nil; that of the generation before,
-- or nil. Whether there are bits of some part without the record.
local current, before, lost = {}, {}, false
local unrecorded = not marks[1] and not marks[3]
for i = 1, asked do
  local now_key, before_key = KEYS[2 * i + odd], KEYS[2 * i + 1 - odd]
  if unrecorded and operation ~= 'ask' and not lost then
    lost = call('GETBIT', now_key, behind) == 1 or window > 0 and call('GETBIT', before_key, behind) == 1
  end
  if marks[2 * i + 2 + odd] == mark then
    current[i] = now_key
  end
  if window > 0 and marks[2 * i + 3 - odd] == mark_before then
    before[i] = before_key
  end
end

if operation == 'count' then
  local reply = {}
  for i, key in ipairs({current[1] or '', before[1] or ''}) do
    reply[i] = lost and -1 or key == '' and 0 or call('BITCOUNT', key) - 1
  end
  return reply
end

local ttl = window > 0 and
  string.format('%.0f', math.ceil(((generation + 2) * window - now) / 1000) + margin)
local changed = {'HSET', KEYS[1], 'shape', shape, 'generation', mark}

-- record writes the record.
local function record()
  call(unpack(changed))
  if ttl then -- a second later than the bits, so that no bits are there without the record
    call('PEXPIRE', KEYS[1], string.format('%.0f', ttl + 1000))
  end
end

if operation == 'begin' then
  if unrecorded and not lost and ARGV[4 + asked] == '1' then
    record()
  end
  return {lost and 1 or 0}
end

local reply, made, n = {}, 0, 0
local byte, char, args = string.byte, string.char, ARGV
local places, first = args[4 + asked], 3 + asked
local size = 3 * (hashes + -hashes % step)

-- missing returns the places of some of the item's bits that are not all set in a block, or nil.
local function missing(block, from, to)
  local byte, places = byte, places
  for at = from, to, 9 do
    local h1, l1, v1, h2, l2, v2, h3, l3, v3 = byte(places, at, at + 8)
    if byte(block, 256 * h1 + l1) % (v1 + v1) < v1 or byte(block, 256 * h2 + l2) % (v2 + v2) < v2
      or byte(block, 256 * h3 + l3) % (v3 + v3) < v3 then
      return at
    end
  end
end

for from = 4, #places, 3 + size do
  n, first = n + 1, first + 2
  local to = from + size - 1
  local add, high, low = byte(places, from - 3, from - 1)
  local part = 256 * high + low
  local key, older, gone = current[part], before[part], false
  local block, at = nil, from
  if key then
    block = call('GETRANGE', key, args[first], args[first + 1])
    if block == '' then
      gone = true
    else
      at = missing(block, from, to)
    end
  end
  local found = not at
  if at and older and not gone then
    local block_before = call('GETRANGE', older, args[first], args[first + 1])
    gone = block_before == ''
    found = not gone and not missing(block_before, from, to)
  end
  if unrecorded then
    reply[n] = 4
  elseif gone then
    reply[n] = 2
  elseif add == 1 and not key and made == most_made then
    reply[n] = 3
  else
    reply[n] = found and 1 or 0
    if add == 1 and at then
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
        block = call('GETRANGE', key, args[first], args[first + 1])
      end
      local all = {byte(block, 1, -1)}
      for place = at, to, 3 do
        local value
        high, low, value = byte(places, place, place + 2)
        local i = 256 * high + low
        if all[i] % (2 * value) < value then
          all[i] = all[i] + value
        end
      end
      call('SETRANGE', key, args[first], char(unpack(all)))
    end
  end
end
if #changed > 6 then
  record()
end
return reply
