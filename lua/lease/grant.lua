-- The functions of grants: weights in use at the nodes, new holders. Only steps that may grant define
-- them.

-- Levels are a list of nodes, weights and limits, such as ARGV from 8 on. has_room tells whether
-- they fit at one node, or at every node if node is nil.
local function has_room(levels, from, node)
  for i = from, #levels, 3 do
    if (not node or node == levels[i]) and
      (get('u:' .. levels[i]) or 0) + levels[i + 1] > levels[i + 2] + 0 then
      return false
    end
  end
  return true
end

local function add_weight(levels, from, sign)
  for i = from, #levels, 3 do
    local field = 'u:' .. levels[i]
    local n = (get(field) or 0) + sign * levels[i + 1]
    fields[field], changed[field] = n ~= 0 and string.format('%.0f', n), true
  end
end

local function grant(id, place, request, lease, levels, from)
  token = now > token + 0 and at or text(token + 1)
  put(1, now + lease, id)
  holders = holders + 1
  add_weight(levels, from, 1)
  fields[id], changed[id] = place .. ' ' .. token .. ' ' .. at .. ' ' .. request, true
end
