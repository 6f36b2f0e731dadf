-- Decides requests in order, each all or nothing, that charge token buckets with tokens of whole
-- microseconds, each bucket under one limit.
--
-- KEYS   the bundles of each request
-- ARGV   0 if a key stands twice, otherwise nothing; then runs of requests that differ only in their
--        keys, each as one text: the number of requests and how often each is charged at most, of 2 bytes;
--        for each charge the label; a byte, which is the reach - 10, plus 64 where the next bundle of the
--        request begins; capacity and cost, of 7 bytes. The lowest byte is first.
-- Reply  for each request that is charged once, for each charge: -2 - 2 * its level if it fits,
--        otherwise -3 - 2 * its level; one such number alone is no list, because a list costs as much as
--        a command. For each other request: how often it fits, and for each charge its algorithm's
--        reply with any number for the receipt.
--
-- A line of two dashes, a colon and a word stands for the part of that name of
-- lua/algorithm/token_bucket.lua, or for lua/bundle/bundle.lua. The charges of a request are decided one
-- after the other on the bundle that the one before has made. If one of them fits less often, all are
-- decided once more, as often as that. Nothing is written before everything has been decided.
local reply, n, key, at, known, staying = {0, 0, 0, 0}, 0, 0, 1, nil, nil
local grace, receipts, part, length, receipt = 4194304, false, 0, 0, 0
local sub, byte, char = string.sub, string.byte, string.char
local text, stays -- of the one key, if there are no more: its new text, whether its TTL stays
if #KEYS > 1 then
  values, staying = values or {}, {}
end
local p = 1
if ARGV[1] == '0' then
  p, known = 2, {}
  for k = 1, #KEYS do
    known[KEYS[k]] = known[KEYS[k]] or k
  end
end
--: names
refill, spare = 1, 0
while key < #KEYS do
  local run = ARGV[p]
  local r, s, t, u = byte(run, 1, 4)
  local requests, bound, last = r + s * 256, t + u * 256, #run + 1
  p = p + 1
  local start = 1 -- where the entry of the first charge is expected
  local costs, capacities = requests > 1 and {}, requests > 1 and {} -- of each charge, once they are read
  for _ = 1, requests do
    local base, verdict, times, fit, clamped, done = key, n, bound, bound, false, nil
    repeat
      local place, edited, from, before -- of the bundle at hand
      key, n, times, clamped, done = base, verdict, fit, false, nil
      if bound > 1 then
        n = n + 1
      end
      for charge = 5, last, 21 do
        local l1, l2, l3, l4, l5, l6, head = byte(run, charge, charge + 6)
        if charge == 5 or charge == last or head > 63 then
          if charge > 5 and edited then
            if from <= #bundle then
              text = text .. sub(bundle, from)
            end
            stays = stays and #text >= before
          end
          if charge == last then
            break
          elseif done then
            local i = #done
            done[i + 1], done[i + 2], done[i + 3] = at, text, stays
          elseif charge > 5 then
            done = {at, text, stays}
          end
          key = key + 1
          at = known and known[KEYS[key]] or key
          bundle = values and values[at] or redis.call('GET', KEYS[key])
          if bundle == '' then error('no bundle of token buckets') end
          bundle = bundle or ''
          edited, stays = false, true
          text, from = '', 1
          before = #bundle
          place = charge == 5 and start or 1
        end
        local fits, changed, spot = true, false, place
        local cost = costs and costs[charge]
        reach = head % 64 + 10
        if cost then
          most = capacities[charge]
        else
          local m1, m2, m3, m4, m5, m6, m7, c1, c2, c3, c4, c5, c6, c7 = byte(run, charge + 7, charge + 20)
          most = m1 + m2 * 256 + m3 * 65536 + m4 * 16777216 + m5 * 4294967296 + m6 * 1099511627776 + m7 * 281474976710656
          cost = c1 + c2 * 256 + c3 * 65536 + c4 * 16777216 + c5 * 4294967296 + c6 * 1099511627776 + c7 * 281474976710656
          if costs then
            costs[charge], capacities[charge] = cost, most
          end
        end
        local k1, k2, k3, k4, k5, k6, mark, a, b, c, d, e, f, g = byte(bundle, spot, spot + 13)
        if k1 ~= l1 or k2 ~= l2 or k3 ~= l3 or k4 ~= l4 or k5 ~= l5 or k6 ~= l6 then
          spot = nil
          if bundle ~= '' then
            --: bundle
            label = sub(run, charge, charge + 5)
            spot = find(bundle, label)
            if spot and spot < from then
              bundle, text, from = text .. sub(bundle, from), '', 1
              spot = find(bundle, label)
            end
          end
          mark, a, b, c, d, e, f, g = byte(bundle, spot and spot + 6 or 1, spot and spot + 13 or 0)
        end
        fraction = 0
        per = 1
        since = false
        if spot then
          --: entry
        else
          spot, length = #bundle + 1, 0
          arrival = 0
          raised = 10
        end
        if charge == 5 then
          start = spot
        end
        local old, whole = arrival, cost
        if times > 1 then
          whole = cost * times
        end
        --: level
        --: room
        if bound == 1 then
          n = n + 1
          reply[n] = (fits and -2 or -3) - 2 * level
        else
          --: answer
        end
        if changed then
          clamped = true
        end
        if fits and times > 0 then
          --: commit
          changed = true
        elseif times > 0 then
          local low, high = 0, times
          while high - low > 1 do
            local middle = math.floor((low + high) / 2)
            whole = cost * middle
            --: room
            if fits then low = middle else high = middle end
          end
          if low < fit then
            fit = low
          end
        end
        if changed then
          --: write
          local entry = char(l1, l2, l3, l4, l5, l6, mark, a, (b - a) / 256, (low - b) / 65536, c, (d - c) / 256, (e - d) / 65536, (high - e) / 16777216)
          if tail ~= '' then
            entry = entry .. tail
          end
          if from < spot then
            text = text .. sub(bundle, from, spot - 1)
          end
          text = text .. entry
          edited = true
          from = spot + length
          if arrival % grace < arrival - old then -- the TTL may end before
            stays = false
          end
        end
        place = spot + length
      end
    until fit == times or fit == 0 and not clamped
    if bound > 1 then
      reply[verdict + 1] = fit
    end
    if fit < times then
      text, done = '', nil
    end
    for i = done and #done or 0, staying and 0 or 1, -3 do
      if text ~= '' then
        values[at], staying[at] = text, stays and staying[at] ~= false
      end
      if i > 0 then
        at, text, stays = done[i - 2], done[i - 1], done[i]
      end
    end
  end
end
for key = 1, #KEYS do
  if staying then
    text, stays = staying[key] ~= nil and values[key] or '', staying[key]
  end
  -- The user may not use SETRANGE.
  if text ~= '' and not (stays and type(redis.pcall('SETRANGE', KEYS[key], '0', text)) == 'number') then
    --: bundle
    save(KEYS, key, text, now, margin)
  end
end
if n == 1 then
  return reply[1]
end
for i = n + 1, 4 do
  reply[i] = nil
end
return reply
