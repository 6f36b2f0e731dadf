-- The operations on the adjustments of quotas. The contract is that of lua/admit/admit.lua.

-- add returns the ends and the units of raises with one more, or with less of one if units is below 0,
-- and by how many units they change.
local function add(known, ends, units)
  local all, at = {}, 1
  for e, u in string.gmatch(known, ' (%d+) (%d+)') do
    all[#all + 1] = {e + 0, u + 0}
  end
  while all[at] and all[at][1] < ends do
    at = at + 1
  end
  if all[at] and all[at][1] == ends then
    units = math.max(units, -all[at][2])
    all[at][2] = all[at][2] + units
    if all[at][2] == 0 then
      table.remove(all, at)
    end
  elseif units > 0 then
    table.insert(all, at, {ends, units})
  else
    units = 0
  end
  for i, one in ipairs(all) do
    all[i] = ' ' .. text(one[1]) .. ' ' .. text(one[2])
  end
  return table.concat(all), units
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
  elseif more ~= 0 and ends <= now then
    return {-4}
  elseif raised(raises[1]) + more > 1000000000000000 then
    return {-3}
  end
  local before = raises[1]
  if before ~= '' and string.match(before, '^%d+') + 0 <= now then
    before = prune(hash, before)
  end
  local known, next, list = now + asked[2], string.match(before, '^(%d*)(.*)$')
  if more ~= 0 then
    list, more = add(list, ends, more)
    local limit = adjustments[3] + 3
    argv[limit] = argv[limit] + more
  end
  if more > 0 then
    known = math.max(known, ends)
  end
  known = known - known % 86400000000 + 86400000000 -- so that ids end together
  next = math.min(next == '' and known or next + 0, more > 0 and ends or known, known)
  change(units) -- before the id is known: if it fails, the adjustment can be sent again
  call('HSET', hash, field, text(known), 'raised', text(next) .. list)
  outlive(hash, known)
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
  argv[-limit] = argv[-limit] or argv[limit] + 0 -- a window pays no more of a debt than before
  argv[limit] = math.max(argv[limit] + 0, asked[1] + 0) -- nothing is dropped or owed
  change(missing)
  if asked[2] ~= '0' then
    local limit = argv[argv[1] + 5] + 0
    local ends = now + (is_grant(limit) and argv[limit + 6] or reply[3])
    call('HSET', hash, 'seeded', text(ends))
    outlive(hash, ends)
  end
  return {missing}
end

local function ask()
  return {seeded(target()) and 0 or -now}
end
