-- The functions of grants: weights in use at the nodes, new holders. Only steps that may grant define
-- them.

-- limit_at returns the limit that holds at a level. A waiter whose weight is above a lowered limit
-- runs alone.
local function limit_at(levels, i)
  local newest = places > 0 and string.match(get('w:' .. levels[i]) or '', '^%d+')
  return math.max((newest or levels[i + 2]) + 0, levels[i + 1] + 0)
end

-- has_room tells whether levels fit at one node, or at every node if node is nil.
local function has_room(levels, node)
  for i = 1, #levels, 3 do
    if (not node or node == levels[i]) and
      (get('u:' .. levels[i]) or 0) + levels[i + 1] > limit_at(levels, i) then
      return false
    end
  end
  return true
end

local function add_weight(levels, sign)
  for i = 1, #levels, 3 do
    local field = 'u:' .. levels[i]
    local n = (get(field) or 0) + sign * levels[i + 1]
    fields[field], changed[field] = n ~= 0 and string.format('%.0f', n), true
  end
end

local function grant(id, place, request, lease, levels)
  token = now > token + 0 and at or text(token + 1)
  put(1, now + lease, id)
  holders = holders + 1
  add_weight(levels, 1)
  fields[id], changed[id] = place .. ' ' .. token .. ' ' .. at .. ' ' .. request, true
end
