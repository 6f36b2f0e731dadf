-- The adjustments of quotas: raise applies them to the limits. The contract is that of lua/admit/admit.lua.

-- prune drops the ids that have ended from a hash of adjustments, and returns its field raised without the
-- raises that have, empty if nothing is left. Only what changes the hash prunes it.
local function prune(hash, known)
  local all, gone, next, kept = call('HGETALL', hash), {}, nil, {}
  for ends, units in string.gmatch(known, ' (%d+) (%d+)') do
    if ends + 0 > now then
      next = math.min(next or ends + 0, ends + 0)
      kept[#kept + 1] = ' ' .. ends .. ' ' .. units
    end
  end
  for i = 1, #all, 2 do
    local ends = string.sub(all[i], 1, 3) == 'id:' and all[i + 1] + 0
    if ends and ends <= now then
      gone[#gone + 1] = all[i]
    elseif ends then
      next = math.min(next or ends, ends)
    end
  end
  for i = 1, #gone, 1000 do
    call('HDEL', hash, unpack(gone, i, math.min(i + 999, #gone)))
  end
  return next and text(next) .. table.concat(kept) or ''
end

-- raise raises the limits of the charges. It returns whether a key is to be seeded before.
local function raise()
  local unseeded = false
  for i = 1, (adjustments[2] or 0) + 0 do
    local limit, hash = adjustments[3 * i] + 3, KEYS[adjustments[3 * i + 1] + 0]
    local values = call('HMGET', hash, 'seeded', 'raised')
    local known = values[2] or ''
    argv[-limit] = argv[limit] + 0
    raises[i], argv[limit] = known, argv[limit] + raised(known)
    if adjustments[3 * i + 2] == '1' and (values[1] or 0) + 0 <= now then
      unseeded = true
    end
  end
  return unseeded
end
