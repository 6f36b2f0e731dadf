-- Decides requests in order, each all or nothing, that charge token buckets with tokens of whole
-- microseconds, each bucket under one limit.
--
-- KEYS   the bundles of each request
-- ARGV   0 if a key stands twice, otherwise nothing; then runs. A run is requests that differ only in
--        their keys. It is one text, in which the lowest byte of a number is first:
--          2 bytes  the number of requests
--          2 bytes  how often each is charged at most
--        and for each charge of one request:
--          6 bytes  label
--          1 byte   reach, plus 64 for the first charge on each bundle after the request's first
--          7 bytes  capacity
--          7 bytes  cost
-- Reply  the requests' replies behind each other. For one that is charged once, a number for each charge:
--        -2 - 2 * its level before the charge if it fits, otherwise -3 - 2 * its level. For one that is
--        charged more often: how often it fits, and for each charge its algorithm's reply with any number
--        for the receipt. One number alone is no list, because a list costs as much as a command.
--        Or a list of -1, if a bucket has a fraction or its level says that the clock went back:
--        lua/decide/decide.lua must judge that. The script then does nothing.
--
-- Nothing is written before everything has been decided.
--
-- A line of two dashes, a colon and a word stands for the part of that name of
-- lua/algorithm/token_bucket.lua, or for lua/bundle/bundle.lua. Requests that charge one bucket each have
-- a loop of their own, because they are the most and that saves an eighth of them.
local KEYS, ARGV = KEYS, ARGV
local byte, char, sub, grace = string.byte, string.char, string.sub, 4194304
local reply, n, key, p, known = {0, 0, 0, 0}, 0, 0, 1, nil
local changes = {false} -- of each key: 1 if its text in values is new, 2 if that needs a TTL
values = values or {false}
if ARGV[1] == '0' then
  p, known = 2, {}
  for k = 1, #KEYS do
    known[KEYS[k]] = known[KEYS[k]] or k
  end
end
while key < #KEYS do
  local run, charge, start = ARGV[p], 5, 1 -- start is where the entry of the first charge is expected
  local l1, l2, l3, l4, l5, l6, head, m1, m2, m3, m4, m5, m6, m7, c1, c2, c3, c4, c5, c6, c7
  local r, s, t, u = byte(run, 1, 4)
  local often, capacity, cost, reach = t + u * 256, 0, 0, 0
  p = p + 1
  local requests, at, bundle, text, change = r + s * 256, 0, '', '', 1
  local spot, from = 1, 1
  if #run == 25 then -- each charges one bucket
    --: charge
  end
  for _ = 1, #run == 25 and requests or 0 do
    key = key + 1
    --: open
    bundle, change = bundle or '', 1
    --: find
    local room, fit, whole = capacity - level, often, often * cost
    if whole > room then
      --: most
      fit = most
      whole = fit * cost
    end
    if often == 1 then
      n = n + 1
      reply[n] = fit - 3 - 2 * level
    else
      reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = fit, level, 0, 0
      n = n + 4
    end
    if fit > 0 then
      --: charged
      if spot > 1 or #bundle > 14 then
        entry = sub(bundle, 1, spot - 1) .. entry .. sub(bundle, spot + length)
      end
      values[at] = entry
      if changes[at] ~= 2 then
        changes[at] = change
      end
    end
  end
  for _ = 1, #run > 25 and requests or 0 do
    local base, first, fit, times, done = key, n, often, often, nil
    repeat -- A pass takes it that all charges fit. If they do not, the next one charges less often.
      key, n, times, done = base, first, fit, nil
      if often > 1 then
        n = n + 1
      end
      for charge = 5, #run, 21 do
        --: charge
        if charge == 5 or head > 63 then
          if charge > 5 then
            done = done or {}
            done[#done + 1] = {at, text .. sub(bundle, from), change}
          end
          key = key + 1
          --: open
          bundle, text, from, change = bundle or '', '', 1, 1
          spot = charge == 5 and start or 1
        end
        --: find
        if charge == 5 then
          start = spot
        end
        local room, whole = capacity - level, times * cost
        if often == 1 then
          n = n + 1
          reply[n] = (whole > room and -3 or -2) - 2 * level
        else
          reply[n + 1], reply[n + 2], reply[n + 3] = level, 0, 0
          n = n + 3
        end
        if whole > room then
          --: most
          if most < fit then
            fit = most
          end
          whole = 0 -- nothing of this pass is kept, and the time of the entry stays below 2^53
        end
        --: charged
        if from < spot then
          text = text .. sub(bundle, from, spot - 1)
        end
        text = text .. entry
        from = spot + length
        spot = from
      end
    until fit == times or fit == 0
    if often > 1 then
      reply[first + 1] = fit
    end
    if fit > 0 then
      text = text .. sub(bundle, from)
      for i = 0, done and #done or 0 do
        if i > 0 then
          at, text, change = unpack(done[i])
        end
        values[at] = text
        if changes[at] ~= 2 then
          changes[at] = change
        end
      end
    end
  end
end
local left = false
for key = 1, #KEYS do
  local change, text = changes[key], values[key]
  if change == 1 and redis.pcall('SETRANGE', KEYS[key], '0', text) ~= #text then
    changes[key], change = 2, 2 -- the user may not use SETRANGE
  end
  if change == 2 then
    left = true
  end
end
if left then
  --: bundle
  for key = 1, #KEYS do
    if changes[key] == 2 then
      save(KEYS, key, values[key], now, margin, true)
    end
  end
end
if n == 1 then
  return reply[1]
end
for i = n + 1, 4 do
  reply[i] = nil
end
return reply
