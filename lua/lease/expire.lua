-- What has expired goes before the operation begins, at most 32 of each set, so that the script stays short.
-- A caller that is refused beside others asks again.
for key = 1, 4, 3 do
  for _, id in ipairs(call('ZRANGEBYSCORE', KEYS[key], '-inf', scope.at, 'LIMIT', '0', '32')) do
    if drop(id) == 0 and call('ZREM', KEYS[key], id) == 1 and key == 4 then
      scope.places = scope.places - 1
    end
  end
end
scope.earliest_end = 0
for key = 1, 4, 3 do
  local first = call('ZRANGE', KEYS[key], '0', '0', 'WITHSCORES')[2]
  first = first and math.floor(first / 1000)
  if first and (scope.earliest_end == 0 or first < scope.earliest_end) then
    scope.earliest_end = first
  end
end
promote_dropped()
