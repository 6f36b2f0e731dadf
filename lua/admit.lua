-- Decides a request whose charges may be held or which takes a slot of a semaphore, all or nothing;
-- settles and renews holds. A hold is the units of one charge that go back at a time, unless they
-- are settled or the hold is renewed before. Holds that have ended are given back before anything
-- else, at most 1000 of a state.
--
-- KEYS   the keys of the charges; then the holds of those that may have some, each a sorted set:
--        "id denominator whole part receipt", the time at which they end; then, for a slot, the five
--        keys of the semaphore, as in lua/lease.lua
-- ARGV   as in lua/decide.lua, not in the short form, for one request, a "peek" if there is a slot,
--        and for none to settle or renew; arguments of the holds, or nothing; as in lua/lease.lua,
--        for an "acquire" that does not wait, or nothing; the number of arguments of the holds; that
--        of lua/lease.lua.
--        Holds: "hold", "settle" or "renew"; the id, empty if nothing is held; the number of keys of
--        charges; for "hold" and "renew" each charge that may have holds, for "settle" each charge:
--        index of its key in KEYS; index of its limit in ARGV; index of its holds in KEYS, 0 if it
--        has none; microseconds to hold it, for "settle" 0 if it is not held; what was charged, as
--        "denominator whole part"; the index of its receipt in the reply, for "settle" and "renew"
--        the receipt; for "settle" also 1 if something is given back, otherwise 0; what is given
--        back, or charged as "force" does, as whole and part, two times; what is charged if the hold
--        has ended, as whole and part, two times.
-- Reply  as in lua/decide.lua; then, if a slot is asked for, unless a charge was denied or the
--        limits do not hold now, as in lua/lease.lua. Without a slot nothing is charged.
--        "settle" and "renew": the sum of 2^(i-1) over the charges i whose hold had ended. Renewing
--        never shortens a hold.

local call = redis.call

local function slice(list, from, to)
  local part = {}
  for i = from, to do
    part[i - from + 1] = list[i]
  end
  return part
end

local function text(number)
  return string.format('%.0f', number)
end

local count, slots = ARGV[#ARGV - 1] + 0, ARGV[#ARGV] + 0
local split = #ARGV - 2 - count - slots
local argv, holds = slice(ARGV, 1, split), slice(ARGV, split + 1, split + count)
local operation, id, states = holds[1], holds[2], (holds[3] or #KEYS - 5) + 0
local keys = slice(KEYS, 1, states)
local from, stride = 4, operation == 'settle' and 15 or 6

-- run decides requests whose verdicts nobody needs. It returns a reply if the limits do not hold
-- now.
local function run(requests)
  if #requests > 0 then
    local asked = slice(argv, 1, argv[1] - 1)
    for _, words in ipairs(requests) do
      for _, word in ipairs(words) do
        asked[#asked + 1] = word
      end
    end
    local reply = decide(keys, asked, now, margin)
    return reply[1] < 0 and reply
  end
end

-- sweep gives back what holds have ended.
local function sweep()
  local gives, ended = {}, {}
  for at = from, count, stride do
    if holds[at + 2] ~= '0' then
      local set = KEYS[holds[at + 2] + 0]
      local members = call('ZRANGEBYSCORE', set, '-inf', text(now), 'LIMIT', 0, 1000)
      for _, member in ipairs(members) do
        local denominator, whole, part, receipt = string.match(member, ' (%d+) (%d+) (%d+) (%d+)$')
        if denominator + 0 ~= argv[holds[at + 1] + 2] + 0 then
          part = '0' -- it was charged under another limit
        end
        gives[#gives + 1] = {'give', 1, 1, '0', holds[at], holds[at + 1], whole, part, receipt}
      end
      if #members > 0 then
        ended[#ended + 1] = {set, members}
      end
    end
  end
  local reply = run(gives)
  for _, one in ipairs(not reply and ended or {}) do
    call('ZREM', one[1], unpack(one[2]))
  end
  return reply
end

-- keep lets the holds of a charge outlive its state, and one that ends in that many microseconds.
local function keep(at, micros)
  local set = KEYS[holds[at + 2] + 0]
  local left = call('PTTL', set)
  if left ~= -2 then
    local least = math.max(call('PTTL', KEYS[holds[at] + 0]), micros > 0 and math.ceil(micros / 1000) + margin or 0)
    if left < least then
      call('PEXPIRE', set, text(least))
    end
  end
end

local function admit()
  local reply = decide(keys, argv, now, margin)
  if slots == 0 or reply[1] < 0 then
    return reply
  end
  local at = argv[1] + 0
  for i = 1, argv[at + 2] + 0 do
    local limit = argv[at + 4 + (i - 1) * 4 + 1]
    if math.floor(reply[1] / 2 ^ (i - 1)) % 2 == 1 and argv[limit + 1] ~= '1' then
      return reply
    end
  end
  local slot = lease(slice(KEYS, #KEYS - 4, #KEYS), slice(ARGV, split + count + 1, #ARGV - 2), now, margin)
  if slot[1] == 1 then
    argv[at] = 'decide'
    reply = decide(keys, argv, now, margin)
  end
  for i = 1, #slot do
    reply[#reply + 1] = slot[i]
  end
  return reply
end

local function hold()
  local reply = admit()
  for at = from, reply[1] >= 0 and count or 0, stride do
    local receipt, micros = reply[holds[at + 5] + 0], 0
    if id ~= '' and receipt ~= 0 then
      local member = id .. ' ' .. holds[at + 4] .. ' ' .. text(receipt)
      micros = holds[at + 3] + 0
      call('ZADD', KEYS[holds[at + 2] + 0], text(now + micros), member)
    end
    keep(at, micros)
  end
  return reply
end

-- look returns the hold of a charge, and when it ends if it has not.
local function look(at)
  local member = id .. ' ' .. holds[at + 4] .. ' ' .. holds[at + 5]
  local score = call('ZSCORE', KEYS[holds[at + 2] + 0], member)
  score = score and tonumber(score)
  return member, score and score > now and score
end

local function settle()
  local verdict, bit, requests, ended = 0, 1, {}, {}
  for at = from, count, stride do
    local part = at + 7
    local member, live
    if holds[at + 3] ~= '0' then
      member, live = look(at)
      if live then
        ended[#ended + 1] = {KEYS[holds[at + 2] + 0], {member}}
      else
        verdict, part = verdict + bit, at + 11
      end
    end
    if holds[at + 6] == '1' and part == at + 7 then
      requests[#requests + 1] = {'give', 1, 1, '0', holds[at], holds[at + 1], holds[part], holds[part + 1], holds[at + 5]}
    else
      for p = part, part + 2, 2 do
        if holds[p] ~= '0' or holds[p + 1] ~= '0' then
          requests[#requests + 1] = {'force', 1, 1, '0', holds[at], holds[at + 1], holds[p], holds[p + 1]}
        end
      end
    end
    bit = bit * 2
  end
  local reply = run(requests)
  if reply then
    return reply
  end
  for _, one in ipairs(ended) do
    call('ZREM', one[1], unpack(one[2]))
  end
  for at = from, count, stride do
    if holds[at + 2] ~= '0' then
      keep(at, 0)
    end
  end
  return {verdict}
end

local function renew()
  local verdict, bit = 0, 1
  for at = from, count, stride do
    local member, live = look(at)
    local ends = now + holds[at + 3]
    if not live then
      verdict = verdict + bit
    elseif ends > live then
      call('ZADD', KEYS[holds[at + 2] + 0], text(ends), member)
      keep(at, holds[at + 3] + 0)
    end
    bit = bit * 2
  end
  return {verdict}
end

local steps = {hold = hold, settle = settle, renew = renew}
return sweep() or (steps[operation] or admit)()
