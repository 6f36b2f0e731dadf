-- evict drops a holder or a waiter, tells it so, and marks its id. It returns what drop does.
local function evict(id)
  local ends = call('ZSCORE', KEYS[1], id) or call('ZSCORE', KEYS[4], id) or scope.now -- Redis may have lost both
  local was, r = drop(id)
  if was > 0 then
    -- The mark outlives the lease by its length, for a holder that could not renew meanwhile.
    ends = ends + r.lease
    scope.places = scope.places + put(4, ends, '!' .. id)
    scope.touched[4] = true -- Redis may have lost the key
    scope.evicted_until = math.max(ends, scope.evicted_until)
    publish(r.channel, '!' .. id)
  end
  return was, r
end
