-- The functions of ids that hold or wait. lease.lua declares their names, and defines them only if the
-- operation may find such an id. Redis may have lost the holders, so that put makes the key anew.

-- load_record returns nil for an unknown id.
load_record = function(id)
  local record = get(id)
  local place, number, granted, request, longest, lease, channel, node, weight, limit, inner =
    string.match(record or '',
      '^(%S+) (%S+) (%S+) ((%S+) (%S+) (%S+) %S+ (%S+) (%S+) (%S+)(.*))$')
  if not place then -- an id may name another field
    return nil
  end
  local levels = {node, weight, limit}
  for word in string.gmatch(inner, '%S+') do
    levels[#levels + 1] = word
  end
  return {
    place = place, token = number, granted = granted, request = request, longest = longest + 0,
    lease = lease + 0, channel = channel, levels = levels,
  }
end

-- extend moves the end of a lease, never back, and returns it, at least now.
extend = function(id, r, lease)
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

-- drop deletes a holder or a waiter. It returns 1 for a holder, 2 for a waiter or 0 for an unknown
-- id, and the record.
drop = function(id)
  local r, was, waited = load_record(id), 0, places > 0
  if r then
    if r.token ~= '0' then
      was, holders = 1, holders - 1
      call('ZREM', KEYS[1], id)
      add_weight(r.levels, 1, -1)
    else
      was = 2
      dequeue(id, r)
    end
    fields[id], changed[id] = false, true
    if waited then
      refresh(r.levels, 1)
      dropped_roots[r.levels[1]] = true
    end
  end
  return was, r
end
