-- Decides the short form of the arguments where every bucket is full or has a plain arrival time that is
-- not beyond the capacity, and that single.lua does not decide. decide.lua decides everything else. A
-- call clears all variables of a function, so this part has few and stands apart.
--
-- KEYS, ARGV, reply  as in decide.lua
-- Sets               values to the values that it has read, 0 for none
if short then
  local sub, byte, char, concat, plain = string.sub, string.byte, string.char, table.concat, true
  local reply, size, key, at, known = {0}, 0, 0, 1, nil
  -- Of each key: the bundle to be written, and whether the key keeps its TTL.
  local writes = {false, false}
  -- Of each charge of a request: where its entry is expected; where it is, or 0; arrival time; reach less
  -- 10.
  local found, pieces = {0, 0, 0, 0}, {'', ''}
  values = values or {false}
  if ARGV[1] == 0 then -- a key stands twice: each is kept where it stands first
    at, known = 2, {}
    for k = 1, #KEYS do
      known[KEYS[k]] = known[KEYS[k]] or k
    end
  end
  while plain and key < #KEYS do
    local count, width, first = -ARGV[at], ARGV[at + 1] + 0, at + 2
    local last = first + 5 * count - 1
    local stop, most = ARGV[last + 1] and key + ARGV[last + 1] * width or #KEYS, (ARGV[last + 2] or 1) + 0
    for i = 1, count do
      local c = first + 5 * i - 5
      local own, place = ARGV[c] + 0, 1
      for before = first, c - 5, 5 do
        if ARGV[before] == own then
          place = place + 14
        end
      end
      ARGV[c], found[4 * i - 3] = own, place
      ARGV[c + 2], ARGV[c + 3], ARGV[c + 4] = ARGV[c + 2] + 0, ARGV[c + 3] + 0, ARGV[c + 4] + 0
    end
    for base = key, stop - width, width do
      local fit, head = most, size + 1
      if most > 1 then
        size = head -- of the verdict
      end
      for i = 1, count do
        local c, o = first + 5 * i - 5, 4 * i
        local k, label, place = base + ARGV[c], ARGV[c + 1], found[o - 3]
        if known then
          k = known[KEYS[k]]
        end
        local bundle, level, arrival, reach = writes[2 * k - 1] or values[k], 0, 0, ARGV[c + 2] - 10
        if not bundle then
          bundle = redis.call('GET', KEYS[k]) or 0
          values[k] = bundle
        end
        if bundle == 0 then
          place = 0
        elseif sub(bundle, place, place + 5) ~= label then
          place = find(bundle, label) or 0
          if place > 0 then
            found[o - 3] = place -- the next request most likely has it there, too
          end
        end
        if place > 0 then
          local old, a, b, d, e, f, g, h = byte(bundle, place + 6, place + 13)
          arrival = a + b * 256 + d * 65536 + e * 16777216 + f * 4294967296 + g * 1099511627776 + h * 281474976710656
          if arrival > now then
            level = arrival - now
            if old >= reach then
              reach = old
            elseif level > 2 ^ old then -- quicker limits charged the bucket, and the clock went back
              plain = false
            end
          end
          plain = plain and old < 64 and level <= ARGV[c + 3]
        end
        found[o - 2], found[o - 1], found[o] = place, arrival, reach
        local cost, room, fits = ARGV[c + 4], ARGV[c + 3] - level, most
        if most * cost > room then
          fits = math.floor(room / cost)
          if fits * cost > room then -- the quotient was rounded up
            fits = fits - 1
          end
          if fits < fit then
            fit = fits
          end
        end
        if most == 1 then
          size = size + 1
          reply[size] = fits - 2 * level - 3
        else
          reply[size + 1], reply[size + 2], reply[size + 3] = level, 0, 0
          size = size + 3
        end
      end
      if most > 1 then
        reply[head] = fit
      end
      for own = 1, plain and fit > 0 and width or 0 do
        local k = base + own
        if known then
          k = known[KEYS[k]]
        end
        local bundle = writes[2 * k - 1] or values[k]
        local n, start, joined, stays = 0, 0, true, bundle ~= 0 and writes[2 * k] ~= 0
        for i = 1, count do
          local c, o = first + 5 * i - 5, 4 * i
          if ARGV[c] == own then
            local place, before = found[o - 2], found[o - 1]
            local arrival = (before > now and before or now) + fit * ARGV[c + 4]
            if n == 0 then
              start = place
            elseif place ~= start + 7 * n then
              joined = false
            end
            if arrival % grace < arrival - before then -- the TTL may end before
              stays = false
            end
            local low = arrival % 16777216
            local high = (arrival - low) / 16777216
            local a, b, d, e, f = low % 256, low % 65536, high % 256, high % 65536, high % 16777216
            n = n + 2
            pieces[n - 1], pieces[n] = ARGV[c + 1], char(found[o], a, (b - a) / 256, (low - b) / 65536, d,
              (e - d) / 256, (f - e) / 65536, (high - f) / 16777216)
          end
        end
        if bundle == 0 or joined and start > 0 then
          local entries = concat(pieces, '', 1, n)
          if bundle ~= 0 and #bundle > 7 * n then
            entries = concat({sub(bundle, 1, start - 1), entries, sub(bundle, start + 7 * n)})
          end
          bundle = entries
        else
          for p = 1, n, 2 do
            local place = find(bundle, pieces[p]) or #bundle + 1
            bundle = concat({sub(bundle, 1, place - 1), pieces[p], pieces[p + 1], sub(bundle, place + 14)})
          end
        end
        writes[2 * k - 1], writes[2 * k] = bundle, stays and 1 or 0
      end
    end
    key, at = stop, last + 3
  end
  for k = 1, plain and #KEYS or 0 do
    local bundle = writes[2 * k - 1]
    -- The user may not use SETRANGE.
    if bundle and (writes[2 * k] == 0 or type(redis.pcall('SETRANGE', KEYS[k], '0', bundle)) ~= 'number') then
      save(KEYS, k, bundle, now, margin)
    end
  end
  if plain then
    return reply
  end
end
