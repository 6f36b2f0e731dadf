-- Decides requests that charge one key each, under limits of one algorithm. No key stands twice.
--
-- KEYS   the keys of the requests
-- ARGV   runs of requests under one limit: the number of requests, or minus that and then the cost and
--        how often each is charged at most, which are 1 otherwise; then what follows the 0 of the limit
--        in lua/decide/decide.lua. At most 0 times is a peek. The cost is whole.
-- Reply  for each request: verdict, the algorithm's reply. The verdict is 0 if the cost fits and 1 if
--        not; or, for more than once, how often it fits. If the period of the first limit does not hold
--        now: -1, now. The script then does nothing.
--
-- A line of two dashes, a colon and a word stands for the part of that name of the algorithm, as in
-- lua/decide/decide.lua.
--
-- A value that keeps its time to live is written by SETRANGE if it is as long as before. That costs less
-- than SET, but Redis doubles the room of a text that grows.
local reply, n, p, key, size, printed, expiry = {0, 0, 0, 0, 0, 0, 0}, 0, 1, 0, 0, nil, nil
local grace, value, ttl, ttls, tails = 4194304, nil, nil, nil, nil
if #KEYS > 1 then
  values, ttls = values or {}, {}
end
--: names
while key < #KEYS do
  local stop, cost, bound = ARGV[p] + 0, 1, 1
  p = p + 1
  if stop < 0 then
    stop, cost, bound, p = -stop, ARGV[p] + 0, ARGV[p + 1] + 0, p + 2
  end
  stop = key + stop
  --: limit
  --: period
  p = p + size
  while key < stop do
    key = key + 1
    local fit, whole, fits, changed, receipt = bound, cost, true, false, 0
    --: get
    --: read
    n = n + 1
    local head = n
    --: look
    if bound > 1 then
      whole = cost * bound
    end
    --: fits
    if fits then
      reply[head] = bound > 1 and bound or 0
    elseif bound <= 1 then
      fit, reply[head] = 0, 1
    else
      local low, high = 0, bound
      while high - low > 1 do
        fit = math.floor((low + high) / 2)
        whole = cost * fit
        --: fits
        if fits then low = fit else high = fit end
      end
      fit, reply[head] = low, low
    end
    if fit > 0 and cost > 0 then
      whole, changed = cost * fit, true
      --: commit
      reply[n] = receipt
    end
    local before, tail, place = value or '', nil, nil
    value, ttl = nil, nil
    if changed then
      --: store
      if not ttl and (#value ~= #before or #before > 607) then -- of a longer one, 608 bytes are read
        ttl = 'keep'
      end
    end
    if tail then
      tails = tails or {}
      tails[key] = {tail, place}
    end
    if ttls then
      values[key], ttls[key] = value, ttl
    end
  end
end
-- Nothing is written before everything has been read: a script that fails has done nothing.
for key = 1, #KEYS do
  if ttls then
    value, ttl = values[key], ttls[key]
  end
  if tails and tails[key] then
    redis.call('SETRANGE', KEYS[key], '0', value)
    redis.call('SETRANGE', KEYS[key], tails[key][2], tails[key][1])
    value = nil
    ttl = ttl ~= 'keep' and ttl
  end
  if ttl == 0 then
    redis.call('DEL', KEYS[key])
  elseif ttl and ttl ~= 'keep' then
    ttl = (ttl - ttl % 1000) / 1000 + 1 + margin
    if ttl ~= printed then
      printed, expiry = ttl, string.format(ttl < 2147483648 and '%d' or '%.0f', ttl)
    end
    if value then
      redis.call('SET', KEYS[key], value, 'PX', expiry)
    else
      redis.call('PEXPIRE', KEYS[key], expiry)
    end
  elseif value and (ttl or type(redis.pcall('SETRANGE', KEYS[key], '0', value)) ~= 'number') then
    redis.call('SET', KEYS[key], value, 'KEEPTTL') -- or the user may not use SETRANGE
  end
end
for i = n + 1, 7 do
  reply[i] = nil
end
return reply
