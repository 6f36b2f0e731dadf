-- Decides requests in order, each all or nothing. Every key is read once and written once at the end.
--
-- KEYS   the keys of all charges, each once
-- ARGV   the number of limits; for each limit: algorithm, 1 if it is a shadow or 0, the algorithm's parameters;
--        then, to the end, for each request: operation, bound, number of charges (at most 16); for each charge:
--        index of its key, index of its limit, cost, the cost's part, and for "give" the receipt.
--        The charges of one request have different keys, and a key has one algorithm.
-- Reply  for each request: verdict; for each charge, but of "give", its algorithm's reply
--
-- decide  Charges all or nothing. Verdict: the sum of 2^(i-1) over the violated charges i.
-- peek    The same, and charges nothing.
-- atmost  Charges each cost n times, n <= bound as large as fits. Verdict: n.
-- give    Gives back charges. Verdict: the number of charges something was given back of.
--
-- A shadow never stands in the way. It is charged when the request is admitted and the shadow has room for it.
local limits, states, charges, reply, n = {false}, {false}, {false}, {0, 0, 0, 0}, 0
local at = 2
for i = 1, ARGV[1] + 0 do
  local name = ARGV[at]
  local algorithm = algorithms[name]
  if type(algorithm) == 'function' then
    algorithm = algorithm()
    algorithms[name] = algorithm
  end
  limits[i], at = algorithm.limit(at + 2, ARGV[at + 1] == '1')
end

-- The largest number of times up to bound that all charges fit; leaves their costs so many times. It adds ever
-- smaller powers of two times the cost, so that it only ever adds and compares.
local function most(count, bound)
  local function plus(whole, part, more, more_part, denominator)
    whole, part = whole + more, part + more_part
    if part >= denominator then
      return whole + 1, part - denominator
    end
    return whole, part
  end
  local steps, step = {}, 1
  for i = 1, count do
    local c = charges[i]
    steps[i] = {{c.whole, c.part}}
    c.whole, c.part = 0, 0
  end
  while step * 2 <= bound do
    step = step * 2
    for i = 1, count do
      local s = steps[i]
      local last = s[#s]
      s[#s + 1] = {plus(last[1], last[2], last[1], last[2], charges[i].limit.denominator)}
    end
  end
  local times = 0
  for j = #steps[1], 1, -1 do
    local fits, sums = times + step <= bound, {}
    for i = 1, count do
      local c, s = charges[i], steps[i][j]
      sums[i] = {plus(c.whole, c.part, s[1], s[2], c.limit.denominator)}
      fits = fits and (c.limit.shadow or c.limit.algorithm.fits(c.state, c.limit, sums[i][1], sums[i][2]))
    end
    if fits then
      times = times + step
      for i = 1, count do
        charges[i].whole, charges[i].part = sums[i][1], sums[i][2]
      end
    end
    step = step / 2
  end
  for i = 1, count do
    local c = charges[i]
    c.fits = not c.limit.shadow or c.limit.algorithm.fits(c.state, c.limit, c.whole, c.part)
  end
  return times
end

local last = #ARGV
while at <= last do
  local operation, bound, count = ARGV[at], ARGV[at + 1] + 0, ARGV[at + 2] + 0
  local verdict, admitted = 0, operation ~= 'peek' and operation ~= 'give'
  at = at + 3
  n = n + 1
  local head = n
  reply[head] = 0
  for i = 1, count do
    local key, limit = ARGV[at] + 0, limits[ARGV[at + 1] + 0]
    local whole, part = ARGV[at + 2] + 0, ARGV[at + 3] + 0
    at = at + 4
    local algorithm, state = limit.algorithm, states[key]
    if not state then
      state = algorithm.load(key)
      states[key] = state
    end
    local found = algorithm.look(state, limit, reply, n)
    if operation == 'give' then
      if algorithm.give(state, limit, whole, part, ARGV[at] + 0) then
        verdict = verdict + 1
      end
      at = at + 1
    else
      n = found
      local fits = operation == 'atmost' or algorithm.fits(state, limit, whole, part)
      if not fits then
        verdict = verdict + 2 ^ (i - 1)
        admitted = admitted and limit.shadow
      end
      charges[i] = {state = state, limit = limit, whole = whole, part = part, fits = fits, receipt = n}
    end
  end
  if operation == 'atmost' then
    verdict = most(count, bound)
  end
  if admitted then
    for i = 1, count do
      local c = charges[i]
      if c.fits and (c.whole > 0 or c.part > 0) then
        reply[c.receipt] = c.limit.algorithm.commit(c.state, c.limit, c.whole, c.part)
      end
    end
  end
  reply[head] = verdict
end

for i = 1, #KEYS do
  local state = states[i]
  if state and state.dirty then
    state.dirty.algorithm.store(state, i)
  end
end
for i = n + 1, #reply do
  reply[i] = nil
end
return reply
