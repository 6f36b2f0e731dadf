-- The functions of ids that leave, and of what they make room for.

-- name_field returns the field of the id's name at the innermost of the levels, or nil.
local function name_field(id, levels)
  local name = string.match(id, '^(.+)/')
  return name and 'i:' .. levels[#levels - 2] .. '/' .. name
end

-- read_nodes reads at once what the hash has of the nodes of levels.
local function read_nodes(levels)
  local names = {nil, nil, nil, nil, nil}
  for i = 1, #levels, 3 do
    local n = #names
    names[n + 1], names[n + 2] = 'u:' .. levels[i], 'w:' .. levels[i]
    if i > 1 then
      names[n + 3] = 'n:' .. levels[i]
    end
  end
  for i, value in ipairs(call('HMGET', KEYS[2], unpack(names))) do
    if scope.fields[names[i]] == nil then
      scope.fields[names[i]] = value
    end
  end
end

local dropped_roots = {} -- where drop left room

-- drop deletes a holder or a waiter. It returns 1 for a holder, 2 for a waiter or 0 for an unknown
-- id, and the record.
local function drop(id)
  local r, was, waited = load_record(id), 0, scope.places > 0
  if r then
    if waited then
      read_nodes(r.levels)
    end
    if r.token ~= '0' then
      was, scope.holders = 1, scope.holders - 1
      call('ZREM', KEYS[1], id)
      add_weight(r.levels, -1)
      if waited and #r.levels > 3 then
        fair().charge(r)
      end
    else
      was = 2
      dequeue(id, r)
    end
    scope.fields[id], scope.changed[id] = false, true
    local field = name_field(id, r.levels)
    if field and get(field) == id then
      scope.fields[field], scope.changed[field] = false, true
    end
    if waited then
      refresh(r.levels)
      dropped_roots[r.levels[1]] = true
    end
  end
  return was, r
end

-- promote_dropped grants what the dropped ids left, root by root in the order of their names.
local function promote_dropped()
  local order = {}
  for node in pairs(dropped_roots) do
    order[#order + 1] = node
  end
  table.sort(order)
  dropped_roots = {}
  for i = 1, #order do
    promote(order[i])
  end
end
