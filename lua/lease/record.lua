-- The functions of ids that hold or wait. Redis may have lost the holders, so that put makes the key
-- anew.
local function get(field)
  local value = scope.fields[field]
  if value == nil then
    value = call('HGET', KEYS[2], field)
    scope.fields[field] = value
  end
  return value
end

-- put adds a member to the holders or to patience, or moves its end. It returns 1 if it is new.
local function put(key, ends, member)
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
  return call('ZADD', KEYS[key], text(ends), member)
end

-- load_record returns nil for an unknown id.
local function load_record(id)
  local record = get(id)
  local place, number, granted, request, longest, lease, channel, terms, node, weight, limit, inner =
    string.match(record or '',
      '^(%S+) (%S+) (%S+) ((%S+) (%S+) (%S+) [^ ;]*;?(%S*) (%S+) (%S+) (%S+)(.*))$')
  if not place then -- an id may name another field
    return nil
  end
  local levels = {node, weight, limit}
  if inner ~= '' then
    for word in string.gmatch(inner, '%S+') do
      levels[#levels + 1] = word
    end
  end
  return {
    place = place, token = number, granted = granted, request = request, longest = longest + 0,
    lease = lease + 0, channel = channel, terms = terms, levels = levels,
  }
end

-- is_evicted tells whether an id that neither holds nor waits has an eviction mark.
local function is_evicted(id)
  return scope.evicted_until > scope.now and (call('ZSCORE', KEYS[4], '!' .. id) or 0) + 0 > scope.now
end
