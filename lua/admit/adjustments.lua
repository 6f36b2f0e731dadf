-- The adjustments of quotas: raise applies them to the limits, and each operation on them has a
-- function. The contract is that of lua/admit/admit.lua.

-- prune drops what has ended from a hash of adjustments, and returns by how much the limit is raised.
local function prune(hash)
  local all, gone, next, units = call('HGETALL', hash), {}, 0, 0
  for i = 1, #all, 2 do
    local ends = string.match(all[i], '^to:(%d+)$')
    local raise = ends and all[i + 1] or 0
    if not ends and string.sub(all[i], 1, 3) == 'id:' then
      ends = all[i + 1]
    end
    ends = tonumber(ends)
    if ends and ends <= now then
      gone[#gone + 1] = all[i]
    elseif ends then
      next, units = next == 0 and ends or math.min(next, ends), units + raise
    end
  end
  for i = 1, #gone, 1000 do
    call('HDEL', hash, unpack(gone, i, math.min(i + 999, #gone)))
  end
  if next > 0 then
    call('HSET', hash, 'raised', text(next) .. ' ' .. text(units))
  else
    call('HDEL', hash, 'raised')
  end
  return units
end

-- raise raises the limits of the charges. It returns whether a key is to be seeded before.
local function raise()
  local unseeded = false
  for i = 1, (adjustments[2] or 0) + 0 do
    local limit, hash = adjustments[i * 3] + 3, KEYS[adjustments[i * 3 + 1] + 0]
    local values = call('HMGET', hash, 'seeded', 'raised')
    local next, units = string.match(values[2] or '', '^(%d+) (%d+)$')
    units = next and (next + 0 <= now and prune(hash) or units + 0) or 0
    raised[i], argv[limit] = units, argv[limit] + units
    if adjustments[i * 3 + 2] == '1' and (values[1] or 0) + 0 <= now then
      unseeded = true
    end
  end
  return unseeded
end

-- outlive lets a hash live at least until that time.
local function outlive(hash, time)
  local least = math.ceil((time - now) / 1000) + margin
  if call('PTTL', hash) < least then
    call('PEXPIRE', hash, text(least))
  end
end

-- change charges units of the request's quota, or gives back some if they are below 0.
local function change(units)
  local at = argv[1] + 0
  local key, limit = argv[at + 4], argv[at + 5]
  if units > 0 then
    run({{'force', 1, 1, '0', key, limit, text(units), '0'}})
  elseif units < 0 then
    run({{'give', 1, 1, '0', key, limit, text(-units), '0', '-2'}})
  end
  if count > 0 then
    keep(from, 0)
  end
end

-- target returns the request's hash of adjustments and the arguments of the operation.
local function target()
  return KEYS[(adjustments[4] or 0) + 0], slice(adjustments, adjustments[2] * 3 + 3, #adjustments)
end

local function adjust()
  local hash, asked = target()
  local field, units, more, ends = 'id:' .. asked[1], asked[3] + 0, asked[4] + 0, asked[5] + 0
  if (call('HGET', hash, field) or 0) + 0 > now then
    return {0}
  elseif more > 0 and ends <= now then
    return {-4}
  elseif raised[1] + more > 1000000000000000 then
    return {-3}
  end
  local known, next = now + asked[2], nil
  if more > 0 then
    known, next = math.max(known, ends), ends
    call('HINCRBY', hash, 'to:' .. text(ends), text(more))
    local limit = adjustments[3] + 3
    argv[limit] = argv[limit] + more
  end
  known = known - known % 86400000000 + 86400000000 -- so that ids end together
  local before = string.match(call('HGET', hash, 'raised') or '', '^(%d+) ')
  next = math.min(next or known, before and before + 0 or known)
  call('HSET', hash, field, text(known), 'raised', text(next) .. ' ' .. text(raised[1] + more))
  outlive(hash, known)
  change(units)
  return {1}
end

-- seeded returns whether a hash of adjustments says that the key is seeded.
local function seeded(hash)
  return (call('HGET', hash, 'seeded') or 0) + 0 > now
end

local function at_least()
  local hash, asked = target()
  if asked[2] == '2' and seeded(hash) then
    return {0}
  end
  local reply, limit = decide(keys, argv, now, margin), argv[argv[1] + 5] + 3
  local missing = math.max(0, asked[1] - reply[2])
  argv[limit] = math.max(argv[limit] + 0, asked[1] + 0) -- nothing is dropped or owed
  change(missing)
  if asked[2] ~= '0' then
    local window = argv[argv[argv[1] + 5] + 0] == 'window'
    local ends = now + (window and reply[3] or 3155760000000000)
    call('HSET', hash, 'seeded', text(ends))
    outlive(hash, ends)
  end
  return {missing}
end

local function ask()
  return {seeded(target()) and 0 or -now}
end
