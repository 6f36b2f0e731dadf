-- Decides requests that charge one key each, under limits of one algorithm. No key stands twice.
--
-- KEYS   the keys of the requests
-- ARGV   runs. A run is requests under one limit, of one cost. It begins with their number, if each
--        costs 1 and is charged once; otherwise with minus their number, the cost, which is whole, and how
--        often each is charged at most: 0 for a peek. Then it has the limit: the numbers behind the
--        denominator in the algorithm's contract.
--        A run on token buckets begins with their number, or for a peek with minus that, a number and 0.
--        Its limit is one text, which has the cost too. The lowest byte of a number is first:
--          6 bytes  label
--          1 byte   reach
--          8 bytes  each: cost, its fraction, denominator, capacity, its fraction
--          digits   queue
-- Reply  for each request: verdict, the algorithm's reply. The verdict is 0 if the cost fits and 1 if
--        not; or, for more than once, how often it fits. If the period of a limit does not hold
--        now: -1, now. The script then does nothing.
--
-- A line of two dashes, a colon and a word stands for the part of that name of the algorithm, without a
-- table between the parts: "names" declares its Names. If its file has a part "straight" and that word, it
-- stands for that; put stands for lua/decide/put.lua otherwise. See lua/decide/decide.lua.
--
-- A value that grows is written whole, by SET, because Redis doubles the room of a text that SETRANGE makes
-- grow; only a long log grows by its tail.
local KEYS, ARGV = KEYS, ARGV
local reply, n, p, key, size, printed, expiry = {0, 0, 0, 0, 0, 0, 0}, 0, 1, 0, 0, nil, nil
local grace, value, ttl, tail, place = 4194304, nil, nil, nil, nil
local sub, format = string.sub, string.format
local ttls, tails
local part = 0 -- of the cost: its fraction
if #KEYS > 1 then
  values, ttls, tails = values or {}, {}, {}
end
--: names
--: beside
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
    local times, whole, fits, changed, receipt = bound, cost, true, false, 0
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
      times, reply[head] = 0, 1
    else
      local low, high = 0, bound
      while high - low > 1 do
        times = math.floor((low + high) / 2)
        whole = cost * times
        --: fits
        if fits then low = times else high = times end
      end
      times, reply[head] = low, low
    end
    if times > 0 and (cost > 0 or part > 0) then
      whole, changed = cost * times, true
      --: commit
      reply[n] = receipt
    end
    local before = value or ''
    value, ttl, tail = nil, nil, nil
    if changed then
      --: store
      if not ttl and (#value ~= #before or #before > 607) then -- of a longer text, get reads 608 bytes
        ttl = 'keep'
      end
    end
    if ttls then
      values[key], ttls[key], tails[key] = value, ttl, tail and {tail, place}
    end
  end
end
-- Nothing is written before everything has been read: a script that fails has done nothing.
for key = 1, #KEYS do
  if ttls then
    value, ttl, tail = values[key], ttls[key], tails[key]
    if tail then
      place = tail[2]
      tail = tail[1]
    end
  end
  --: put
end
for i = n + 1, 7 do
  reply[i] = nil
end
return reply
