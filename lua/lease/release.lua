for i = 2, #ARGV do
  local was, r = drop(ARGV[i])
  if was == 1 then
    scope.hold = mean_hold(scope.hold, now - r.granted)
  elseif was == 0 and is_evicted(ARGV[i]) then
    scope.places = scope.places - call('ZREM', KEYS[4], '!' .. ARGV[i])
  end
end
promote_dropped()
reply = {0}
