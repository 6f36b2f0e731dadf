-- The functions of grants: what an id asked for, weights in use at the nodes, new holders.

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

-- has_room tells whether levels fit at one node, or at every node if node is nil. The limit that holds
-- is that of the newest caller, but a waiter whose weight is above a lowered limit runs alone.
local function has_room(levels, node)
  for i = 1, #levels, 3 do
    if not node or node == levels[i] then
      local newest = scope.places > 0 and string.match(get('w:' .. levels[i]) or '', '^%d+')
      local limit = math.max((newest or levels[i + 2]) + 0, levels[i + 1] + 0)
      if (get('u:' .. levels[i]) or 0) + levels[i + 1] > limit then
        return false
      end
    end
  end
  return true
end

local function add_weight(levels, sign)
  for i = 1, #levels, 3 do
    local field = 'u:' .. levels[i]
    local n = (get(field) or 0) + sign * levels[i + 1]
    scope.fields[field], scope.changed[field] = n ~= 0 and string.format('%.0f', n), true
  end
end

-- put adds a member to the holders or to patience, or moves its end. It returns 1 if it is new.
local function put(key, ends, member)
  reach(key, ends)
  return call('ZADD', KEYS[key], text(ends), member)
end

local function grant(id, place, request, lease, levels)
  scope.token = scope.now > scope.token + 0 and scope.at or text(scope.token + 1)
  put(1, scope.now + lease, id)
  scope.holders = scope.holders + 1
  add_weight(levels, 1)
  scope.fields[id] = place .. ' ' .. scope.token .. ' ' .. scope.at .. ' ' .. request
  scope.changed[id] = true
end
