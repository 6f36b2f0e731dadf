-- The holds of charges: sweep gives back those that have ended, and each operation on holds has a
-- function. The contract is that of lua/admit/admit.lua.

-- note adds to the units that the holds of a set hold in total, or takes some away if they are below
-- 0.
local function note(set, total, units)
  if call('ZADD', set, 'INCR', text(-units), total) + 0 >= 0 then
    call('ZREM', set, total)
  end
end

-- drop removes holds of a set, given the units by which each of its totals falls.
local function drop(set, members, totals)
  call('ZREM', set, unpack(members))
  for total, units in pairs(totals) do
    note(set, total, -units)
  end
end

-- sweep gives back what holds have ended, at most 1000 of all states. A hold of a log counts for one
-- in twenty of the entries that its refund may rewrite.
function sweep()
  local gives, ended, room, time = {}, {}, 1000, count > 0 and text(now)
  for at = from, count, stride do
    if holds[at + 2] ~= '0' then
      local set, limit, each = KEYS[holds[at + 2] + 0], holds[at + 1] + 0, 1
      if argv[limit] == 'sliding_log' then
        each = math.ceil(math.min(argv[limit + 5] + 0, 1000) / 20)
      end
      local found = call('ZRANGEBYSCORE', set, '0', time, 'WITHSCORES', 'LIMIT', '0', math.floor(room / each))
      local members, totals = {}, {}
      room = room - each * #found / 2
      for i = 1, #found, 2 do
        local member, ends = found[i], text(tonumber(found[i + 1]))
        members[#members + 1] = member
        local units, denominator, whole, part, receipt = string.match(member, ' (%d+) (%d+) (%d+) (%d+) (%d+)$')
        local total = total_of(limit, receipt)
        totals[total] = (totals[total] or 0) + units
        if denominator + 0 ~= argv[limit + 2] + 0 then
          part = '0' -- it was charged under another limit
        end
        gives[#gives + 1] = {'expire', 1, 1, '0', ends, holds[at], holds[at + 1], whole, part, receipt}
      end
      if #members > 0 then
        ended[#ended + 1] = {set, members, totals}
      end
    end
  end
  run(gives)
  for _, one in ipairs(ended) do
    drop(unpack(one))
  end
end

-- keep lets the holds of a charge outlive its state, and one that ends in that many microseconds.
function keep(at, micros)
  local set = KEYS[holds[at + 2] + 0]
  local left = call('PTTL', set)
  if left ~= -2 then
    local least = math.max(call('PTTL', KEYS[holds[at] + 0]), micros > 0 and math.ceil(micros / 1000) + margin or 0)
    if left < least then
      call('PEXPIRE', set, text(least))
    end
  end
end

-- units_of returns the units of a charge that are held.
local function units_of(at)
  return string.match(holds[at + 4], '^%d+') + 0
end

local function hold()
  local reply = admit()
  for at = from, count, stride do
    local receipt, micros = reply[holds[at + 5] + 0], 0
    if id ~= '' and receipt ~= 0 then
      local set, since = KEYS[holds[at + 2] + 0], text(receipt)
      micros = holds[at + 3] + 0
      call('ZADD', set, text(now + micros), id .. ' ' .. holds[at + 4] .. ' ' .. since)
      note(set, total_of(holds[at + 1] + 0, since), units_of(at))
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
        local total = total_of(holds[at + 1] + 0, holds[at + 5])
        ended[#ended + 1] = {KEYS[holds[at + 2] + 0], {member}, {[total] = units_of(at)}}
      else
        verdict, part = verdict + bit, at + 9
      end
    end
    if holds[at + 6] == '1' and part == at + 7 then
      requests[#requests + 1] = {'give', 1, 1, '0', holds[at], holds[at + 1], holds[part], holds[part + 1], holds[at + 5]}
    elseif holds[part] ~= '0' or holds[part + 1] ~= '0' then
      requests[#requests + 1] = {'force', 1, 1, '0', holds[at], holds[at + 1], holds[part], holds[part + 1]}
    end
    bit = bit * 2
  end
  run(requests)
  for _, one in ipairs(ended) do
    drop(unpack(one))
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
