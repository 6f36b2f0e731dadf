-- extend moves the end of a lease, never back, and returns it, at least now.
local function extend(id, r, lease)
  local known = call('ZSCORE', KEYS[1], id)
  local ends, wanted = (known or 0) + 0, scope.now + lease
  if r.longest > 0 then
    wanted = math.min(wanted, r.granted + r.longest)
  end
  if wanted > ends then
    put(1, wanted, id)
    scope.touched[1] = scope.touched[1] or not known
  end
  return math.max(wanted, ends, scope.now)
end
