-- The functions of ids that hold or wait. Redis may have lost the holders, so that put makes the key
-- anew.
local function get(field)
  local value = fields[field]
  if value == nil then
    value = call('HGET', KEYS[2], field)
    fields[field] = value
  end
  return value
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
  for word in string.gmatch(inner, '%S+') do
    levels[#levels + 1] = word
  end
  return {
    place = place, token = number, granted = granted, request = request, longest = longest + 0,
    lease = lease + 0, channel = channel, terms = terms, levels = levels,
  }
end

-- name_field returns the field of the id's name at the innermost of the levels, or nil.
local function name_field(id, levels)
  local name = string.match(id, '^(.+)/')
  return name and 'i:' .. levels[#levels - 2] .. '/' .. name
end

-- extend moves the end of a lease, never back, and returns it, at least now.
local function extend(id, r, lease)
  local known = call('ZSCORE', KEYS[1], id)
  local ends, wanted = (known or 0) + 0, now + lease
  if r.longest > 0 then
    wanted = math.min(wanted, r.granted + r.longest)
  end
  if wanted > ends then
    put(1, wanted, id)
    touched[1] = touched[1] or not known
  end
  return math.max(wanted, ends, now)
end

-- is_evicted tells whether an id that neither holds nor waits has an eviction mark.
local function is_evicted(id)
  return evicted_until > now and (call('ZSCORE', KEYS[4], '!' .. id) or 0) + 0 > now
end

local function renew()
  for i = 3, #ARGV do
    local id = ARGV[i]
    local r = load_record(id)
    if r and r.token ~= '0' then
      reply[i - 2] = math.max(1, extend(id, r, ARGV[2]) - now)
    else
      reply[i - 2] = not r and is_evicted(id) and -1 or 0
    end
  end
end
