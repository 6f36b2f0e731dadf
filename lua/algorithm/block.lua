-- Block. It admits everything until a key has had a number of strikes within a time, and then
-- nothing for a while, which doubles from block to block.
--
-- Limit  0; strikes that block; the time within which they count; length of the first block; of the
--        longest; the time after the end of a block that forgives it
-- Cost   strikes, 0; or 0 and the length of a block by hand; or strikes and the time in which no block
--        may have begun if they are to count; plus 1000 times the reason of the block, which is 0 to 9
-- Reply  strikes, time until the block ends or 0, time until the oldest strike is too old, time until
--        the youngest is, length of the next block, reason of the block, receipt
-- Value  "end length level", of the last block and 0 if there was none or it is forgiven, the level
--        being how often the length of the next one has doubled, plus 100 times the reason; then the
--        times of the strikes, oldest first, at most 100, each behind a space
--
-- A strike fits unless the key is blocked, and a block begins with the strike that completes it.
-- Strikes of a blocked key do not count. What lies in the future, because the clock stepped back, is
-- moved to now: strikes, and the beginning of a block.
--
-- A receipt is the time of the strikes, plus 1. The receipt 1 gives back all of them. A block stays.
-- The receipt 2 forgives the last block if it has ended.

--: look
local state = states[key]
if not state then
  local value = values[key] or redis.call('GET', KEYS[key])
  state = {kept = {ends = 0, length = 0, level = 0, times = {}}, found = false}
  if value then
    local ends, length, level, times = string.match(value, '^(%d+) (%d+) (%d+)(.*)$')
    local kept = state.kept
    kept.ends, kept.length, kept.level = ends + 0, length + 0, level + 0
    for time in string.gmatch(times, '%d+') do
      table.insert(kept.times, time + 0)
    end
  end
  states[key] = state
end
for i = limit + 3, limit + 7 do
  ARGV[i] = ARGV[i] + 0
end
-- What is found under one limit is kept if it is committed: another limit may find more.
local kept, changed = state.kept, false
local ends, length, level, times = kept.ends, kept.length, kept.level, {}
if ends > now + length then
  ends, changed = now + length, true
end
if ends > 0 and now - ends >= ARGV[limit + 7] then
  ends, length, level = 0, 0, 0
end
for _, time in ipairs(kept.times) do
  if time > now then
    time, changed = now, true
  end
  if time > now - ARGV[limit + 4] then
    table.insert(times, time)
  end
end
state.found = {ends = ends, length = length, level = level, times = times}
if changed then
  state.kept, dirty[key] = state.found, limit
end
local following = ARGV[limit + 5]
for _ = 1, level % 100 do
  following = math.min(2 * following, ARGV[limit + 6])
end
local fresh = ARGV[limit + 4] - now
reply[n + 1], reply[n + 2] = #times, math.max(0, ends - now)
reply[n + 3], reply[n + 4] = times[1] and times[1] + fresh or 0, times[1] and times[#times] + fresh or 0
reply[n + 5], reply[n + 6], reply[n + 7] = following, math.floor(level / 100), 0
n = n + 7

--: fits
fits = reply[found - 5] == 0

--: commit
local state, length, strikes = states[key].found, reply[found - 2], whole % 1000
if operation == 'atmost' then -- a multiple of a shadow's strikes may be large, and has no reason
  strikes = whole
end
local reason = (whole - strikes) / 10
states[key].kept = state
if part > 0 and strikes == 0 then
  if now + part > state.ends then
    state.ends, state.level = now + part, state.level % 100 + reason
  end
  state.length, state.times = state.ends - now, {}
  receipt = now + 1
elseif state.ends <= now and (part == 0 or state.ends - state.length <= now - part) then
  for _ = 1, math.min(strikes, ARGV[limit + 3]) do
    table.insert(state.times, now)
  end
  if #state.times >= ARGV[limit + 3] then
    state.ends, state.length, state.times = now + length, length, {}
    state.level = state.level % 100 + reason
    if length < ARGV[limit + 6] then
      state.level = state.level + 1
    end
  end
  receipt = now + 1
else
  receipt = 0
end

--: give
local state, times, left = states[key].found, {}, whole
for _, time in ipairs(state.times) do
  if left > 0 and (receipt == 1 or time == receipt - 1) then
    left = left - 1
  else
    table.insert(times, time)
  end
end
given = left < whole
if given then
  state.times, states[key].kept = times, state
end
if receipt == 2 and state.ends > 0 and state.ends <= now then
  state.ends, state.length, state.level, given = 0, 0, 0, true
  states[key].kept = state
end

--: store
local state, texts = states[key].kept, {}
local times = state.times
if state.ends > 0 then
  ttl = state.ends + ARGV[limit + 7] - now
end
if #times > 0 then
  ttl = math.max(ttl or 0, times[#times] + ARGV[limit + 4] - now)
end
if ttl then
  texts[1], texts[2] = format('%.0f', state.ends), format('%.0f', state.length)
  texts[3] = format('%d', state.level)
  for _, time in ipairs(times) do
    table.insert(texts, format('%.0f', time))
  end
  value = table.concat(texts, ' ')
else
  ttl = 0
end
