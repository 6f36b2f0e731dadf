-- Block. It admits everything until a key has had a number of strikes within a time, and then
-- nothing for a while, which doubles from block to block.
--
-- Limit  denominator 0; strikes that block; the time within which they count; length of the first block;
--        of the longest; the time after the end of a block that forgives it
-- Cost   strikes plus 1000 times the reason of the block, which is 0 to 9; then
--          0        for strikes that count if the key is not blocked
--          a time   for no strikes: the length of a block by hand
--                   for strikes: they count if no block has begun within it
-- Reply  strikes, time until the block ends or 0, time until the oldest strike is too old, time until
--        the youngest is, length of the next block, reason of the block, receipt
-- Value  "end length level", of the last block and 0 if there was none or it is forgiven, the level
--        being how often the length of the next one has doubled, plus 100 times the reason; then the
--        times of the strikes, oldest first, at most 100, each behind a space
-- Names  most, within, shortest, longest, forgiven, ends, length, level, times, stops, lasts, rank, recent, following
--
-- A strike fits unless the key is blocked, and a block begins with the strike that completes it.
-- Strikes of a blocked key do not count. What lies in the future, because the clock stepped back, is
-- moved to now: strikes, and the beginning of a block.
--
-- A receipt is the time of the strikes, plus 1. The receipt 1 is that of all times. A block stays.
-- The receipt 2 forgives the last block if it has ended.
--
-- most, within, shortest, longest, forgiven  of the limit
-- ends, length, level, times                 as stored
-- stops, lasts, rank, recent                 the same at now, under the limit: another limit may find more,
--                                            so they are stored only if they are committed
-- following                                  length of the next block

--: limit
most, within, shortest, longest, forgiven = ARGV[p] + 0, ARGV[p + 1] + 0, ARGV[p + 2] + 0, ARGV[p + 3] + 0, ARGV[p + 4] + 0
size = 5

--: read
ends, length, level, times = 0, 0, 0, {}
if value then
  local a, b, c, strikes = string.match(value, '^(%d+) (%d+) (%d+)(.*)$')
  ends, length, level = a + 0, b + 0, c + 0
  for time in string.gmatch(strikes, '%d+') do
    table.insert(times, time + 0)
  end
end

--: look
stops, lasts, rank, recent, following = ends, length, level, {}, shortest
if stops > now + lasts then
  stops, changed = now + lasts, true
end
if stops > 0 and now - stops >= forgiven then
  stops, lasts, rank = 0, 0, 0
end
for _, time in ipairs(times) do
  if time > now then
    time, changed = now, true
  end
  if time > now - within then
    table.insert(recent, time)
  end
end
if changed then
  ends, length, level, times = stops, lasts, rank, recent
end
for _ = 1, rank % 100 do
  following = math.min(2 * following, longest)
end
local fresh, oldest, youngest = within - now, recent[1], recent[#recent]
reply[n + 1], reply[n + 2] = #recent, math.max(0, stops - now)
reply[n + 3], reply[n + 4] = oldest and oldest + fresh or 0, youngest and youngest + fresh or 0
reply[n + 5], reply[n + 6], reply[n + 7] = following, math.floor(rank / 100), 0
n = n + 7

--: fits
fits = stops <= now

--: commit
local strikes = whole % 1000
if operation == 'atmost' then -- a multiple of strikes may be large, and has no reason
  strikes = whole
end
local reason = 100 * ((whole - strikes) / 1000) -- as it stands in the level
receipt = now + 1
if part > 0 and strikes == 0 then
  if now + part > stops then
    stops, rank = now + part, rank % 100 + reason
  end
  lasts, recent = stops - now, {}
elseif stops <= now and (part == 0 or stops - lasts <= now - part) then
  for _ = 1, math.min(strikes, most) do
    table.insert(recent, now)
  end
  if #recent >= most then
    stops, lasts, recent = now + following, following, {}
    rank = rank % 100 + reason
    if following < longest then
      rank = rank + 1
    end
  end
else
  receipt = 0
end
ends, length, level, times = stops, lasts, rank, recent

--: give
local kept, left = {}, whole
for _, time in ipairs(recent) do
  if left > 0 and (receipt == 1 or time == receipt - 1) then
    left = left - 1
  else
    table.insert(kept, time)
  end
end
given = left < whole
if receipt == 2 and stops > 0 and stops <= now then
  stops, lasts, rank, given = 0, 0, 0, true
end
if given then
  ends, length, level, times = stops, lasts, rank, kept
end

--: store
if ends > 0 then
  ttl = ends + forgiven - now
end
if #times > 0 then
  ttl = math.max(ttl or 0, times[#times] + within - now)
end
if ttl then
  local texts = {format('%.0f', ends), format('%.0f', length), format('%d', level)}
  for _, time in ipairs(times) do
    table.insert(texts, format('%.0f', time))
  end
  value = table.concat(texts, ' ')
else
  ttl = 0
end
