-- extend moves the end of a lease, never back, and returns it, at least now. It leaves the writing to a
-- ZADD of all ends that move.
local function extend(ends, id, granted, longest, lease)
  local known = call('ZSCORE', KEYS[1], id)
  local before, wanted = (known or 0) + 0, scope.now + lease
  if longest > 0 then
    wanted = math.min(wanted, granted + longest)
  end
  if wanted > before then
    reach(1, wanted)
    scope.touched[1] = scope.touched[1] or not known -- Redis may have lost the holders
    ends[#ends + 1], ends[#ends + 2] = text(wanted), id
  end
  return math.max(wanted, before, scope.now)
end

local ends = {'ZADD', KEYS[1], nil, nil}
