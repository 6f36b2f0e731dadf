-- Decides a request whose charges may be held, whose limits may be raised or which takes a slot of a
-- semaphore, all or nothing; settles and renews holds; adjusts what is used of a quota.
--
-- A hold is the units of one charge that go back at a time, unless they are settled or the hold is
-- renewed before. Holds that have ended are given back before anything else, as far as that is little
-- work.
-- A quota is a fixed window, a calendar or a grant. Its adjustments raise
-- its limit for some time, and tell whether the key is seeded: whether what was used before Redis
-- knew the key is charged.
--
-- KEYS   the keys of the charges; then the holds of those that may have some, each a sorted set of
--        "id units denominator whole part receipt" by the time at which the hold ends, and of totals:
--        "held", for a window "held receipt", by minus the units that are held in all; then the
--        adjustments of those that may have some, each a hash:
--        id:<id>     until when the id of an adjustment is known
--        raised      "next", and " end units" for each raise in the order of their ends: the first
--                    end of an id or a raise; the units by which the limit is raised until a time
--        seeded      until when the key is seeded
--        then, for a slot, the five keys of the semaphore, as in lua/lease/lease.lua
-- ARGV   as in lua/decide/decide.lua, for one request, a "decide" if there
--        is a slot and a "peek" if it adjusts, and for none to settle or renew; arguments of the
--        holds, or nothing; of the adjustments, or nothing; as in lua/lease/lease.lua, for an "acquire" that does not wait, or
--        nothing; the number of keys of charges; the numbers of arguments of the holds, of the
--        adjustments and of lua/lease/lease.lua.
--        Holds: "hold", "settle" or "renew"; the id, empty if nothing is held; for "hold" and "renew"
--        each charge that may have holds, for "settle" each charge: index of its key in KEYS; index
--        of its limit in ARGV; index of its holds in KEYS, 0 if it has none; microseconds to hold it,
--        for "settle" 0 if it is not held; what was charged, as "units denominator whole part"; the
--        index of its receipt in the reply, for "settle" and "renew" the receipt; for "settle" also 1 if
--        something is given back, otherwise 0; what is given back, or charged as "force" does, as
--        whole and part; what is charged if the hold has ended, as whole and part.
--        Adjustments: the operation, or an empty text to decide; the number of charges that may have
--        some; for each of these: index of its limit in ARGV, index of its adjustments in KEYS, 1 if
--        it is to be seeded before it is charged. No two of them have one limit. Then of the
--        operation:
--        adjust    the id; microseconds for which it is known; units to charge, or to give back if
--                  below 0; units by which the limit is raised, or to take from an earlier raise with
--                  that end if below 0; until when
--        atleast   units, which are charged whether they fit or not; 1 if the key is seeded with
--                  them, 2 if it is unless it has been seeded before, otherwise 0
--        ask       nothing
-- Reply  -1, now if the limits do not hold now; nothing is done then. Otherwise as in
--        lua/decide/decide.lua; then, for each charge that may have adjustments, the number of the
--        raises of its limit, and for each, the first to end first, how long it lasts and its units;
--        then, for each charge that may have holds, the units of its state that were held before; then, if a
--        slot is asked for, unless a charge was denied, as in lua/lease/batch.lua. Without a slot
--        nothing is charged. -2 if a key is to be seeded before; nothing is done then.
--        "settle" and "renew": the sum of 2^(i-1) over the charges i whose hold had ended. Renewing
--        never shortens a hold.
--        "adjust": 1; or why nothing has changed: 0 for a known id, -3 for raises of more than
--        10^15 units, -4 for a raise that has ended. "atleast": the units that were missing. "ask": 0
--        if the key is seeded, otherwise minus the time.
--
-- A line of two dashes, a colon and a name stands for the file of that name in lua/admit.

local call = redis.call

local function slice(list, from, to)
  return {unpack(list, from, to)}
end

local function append(list, more)
  for i = 1, #more do
    list[#list + 1] = more[i]
  end
  return list
end

local function text(number)
  return string.format('%.0f', number)
end

local tail = #ARGV - 3
local count, adjusted, slots = ARGV[tail + 1] + 0, ARGV[tail + 2] + 0, ARGV[tail + 3] + 0
local split = tail - 1 - count - adjusted - slots
local argv, holds = slice(ARGV, 1, split), slice(ARGV, split + 1, split + count)
local adjustments = slice(ARGV, split + count + 1, split + count + adjusted)
local keys, operation, id = slice(KEYS, 1, ARGV[tail] + 0), holds[1], holds[2]
local from, stride = 3, operation == 'settle' and 11 or 6

if argv[3] ~= '0' and (now < argv[2] + 0 or now >= argv[3] + 0) then
  return {-1, now}
end

-- run decides requests whose replies nobody needs.
local function run(requests)
  if #requests > 0 then
    local asked = slice(argv, 1, argv[1] - 1)
    for at = 1, adjusted > 0 and #asked or 0 do
      asked[-at] = argv[-at] -- what raise keeps of limits
    end
    for _, words in ipairs(requests) do
      for _, word in ipairs(words) do
        asked[#asked + 1] = word
      end
    end
    decide(keys, asked, now, margin)
  end
end

local raises = {} -- of each charge with adjustments: the field raised of its hash

-- raised returns by how much a limit is raised now.
local function raised(known)
  local sum = 0
  for ends, units in string.gmatch(known, ' (%d+) (%d+)') do
    if ends + 0 > now then
      sum = sum + units
    end
  end
  return sum
end

-- is_grant reports whether a window is that of a grant.
local function is_grant(limit)
  return argv[limit + 4] == '0' and argv[limit + 5] == '-1'
end

-- total_of returns the member of a set of holds that has the units held under a limit. Charges of
-- one window have one receipt, and count in that window alone.
local function total_of(limit, receipt)
  return argv[limit] == 'window' and not is_grant(limit) and 'held ' .. receipt or 'held'
end

-- held returns the units of a charge's state that are held and count now.
local function held(at, reply)
  local limit, receipt = holds[at + 1] + 0, ''
  if argv[limit] == 'window' and not is_grant(limit) then
    local width = math.abs(argv[limit + 4])
    local start = width == 0 and argv[limit + 5] + 0
      or reply[holds[at + 5] - 1] - width -- it ends then, and has that width
    receipt = text(start + 1)
  end
  return 0 - (call('ZSCORE', KEYS[holds[at + 2] + 0], total_of(limit, receipt)) or 0)
end

-- tell appends the raises of each limit with adjustments, and the units that are held.
local function tell(reply)
  for _, known in ipairs(raises) do
    local head = #reply + 1
    reply[head] = 0
    for ends, units in string.gmatch(known, ' (%d+) (%d+)') do
      if ends + 0 > now then
        reply[head] = reply[head] + 1
        append(reply, {ends - now, units + 0})
      end
    end
  end
  for at = from, operation == 'hold' and count or 0, stride do
    reply[#reply + 1] = held(at, reply)
  end
  return reply
end

-- admit decides, and takes the slot once every charge fits and before any is spent.
local function admit()
  local at, slot = argv[1] + 0, nil
  local function confirm()
    local token = lone(KEYS, #KEYS - 4, ARGV, tail - slots, tail - 1, now, text(now))
    slot = token and {token} or lease(slice(KEYS, #KEYS - 4, #KEYS), slice(ARGV, tail - slots, tail - 1), now)
    return token or slot[1] == 1
  end
  local reply = decide(keys, argv, now, margin, slots > 0 and confirm)
  if argv[at] ~= 'give' then
    tell(reply)
  end
  return slot and append(reply, slot) or reply
end

-- Closures cost more than what they do here, so only those are made that the request may use.
local step, sweep, keep = admit, nil, nil
if count > 0 then
  --: holds
  step = operation == 'hold' and hold or operation == 'settle' and settle or operation == 'renew' and renew or admit
end
if adjusted > 0 then
  --: adjustments
  if adjustments[1] ~= '' then
    --: adjust
    step = ({adjust = adjust, atleast = at_least, ask = ask})[adjustments[1]]
  end
  if raise() then
    return {-2}
  end
end
if sweep then
  sweep()
end
return step()
