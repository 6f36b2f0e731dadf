-- The functions of ids that hold or wait.

local function get(field)
  local value = scope.fields[field]
  if value == nil then
    value = call('HGET', KEYS[2], field)
    scope.fields[field] = value
  end
  return value
end

-- reach lets the keys live long enough for an end of a holder or of patience.
local function reach(key, ends)
  local milliseconds = math.floor(ends / 1000)
  if scope.earliest_end == 0 or milliseconds < scope.earliest_end then
    scope.earliest_end = milliseconds
  end
  if milliseconds >= scope.latest_end then
    scope.latest_end, scope.touched = milliseconds + 30000, {true, true, true, true, true}
  end
  if (key == 1 and scope.holders or scope.places) == 0 then
    scope.touched[key] = true
  end
end

-- is_evicted tells whether an id that neither holds nor waits has an eviction mark.
local function is_evicted(id)
  return scope.evicted_until > scope.now and (call('ZSCORE', KEYS[4], '!' .. id) or 0) + 0 > scope.now
end
