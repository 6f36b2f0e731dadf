-- Decides requests in order, each all or nothing. What a key holds is read once and written once, at the end.
--
-- KEYS   the keys of all charges, each once
-- ARGV   the index where the requests begin; the time from which and until which the limits hold, in microseconds, or 0
--        and 0 if they always do; 1 to read all keys at once, which is for several with short values, or 0; then limits, each:
--        algorithm, 1 if it is a shadow or 0, the denominator of its costs' parts or 0 if they have none, the
--        algorithm's own parameters; then, to the end, runs of requests that differ in their keys alone, each:
--        operation, number of requests, number of charges (at most 16), 1 if the charges may be given back or 0, for "atmost"
--        and "reserve" the bound; for each charge of the first: index of its key in KEYS, index of its limit in ARGV, cost, the
--        cost's part, and for "give" the receipt. Those of the next have the keys that follow the last one's: the indexes plus
--        the number of charges.
--        The charges of one request have different keys, and a key has one algorithm.
--        Or, in short, where each request is of another key, to spend the same cost of the same token bucket, which knows no
--        parts of a microsecond: less than 0 by the reach, capacity, cost; then, unless all are 1, how often for each key: from
--        2 on that is "atmost".
-- Reply  for each request: verdict; for each charge, except of "give", its algorithm's reply.
--        Where the clock is outside the time of the limits: -1, now; nothing is done then.
--
-- decide   Charges all or nothing. Verdict: the sum of 2^(i-1) over the violated charges i.
-- peek     As decide, and charges nothing.
-- reserve  As decide, but a charge may be one for later, by at most the bound in microseconds.
-- atmost   Charges each cost n times, n <= bound as large as fits. Verdict: n.
-- give     Gives back the cost of each charge, or as much of it as still counts. Verdict: the number of charges something was
--          given back of.
-- force    Charges each cost, fits or not, as far as the debt that its algorithm allows. Verdict: 0.
--
-- A shadow never stands in the way. It is charged when the request is admitted and the shadow has room for it.
--
-- A line of two dashes, a colon and a word stands for the part of that name of the algorithm:
--
-- run     may decide the first requests of a run of decisions on one charge, whose arguments begin at ARGV[at]: decided of
--         them; sets upto to the next one if it may decide others after that
-- look    reads the key's state, from values[key] if it is there, into states[key] if it is not there yet;
--         brings it to now as the limit sees it; only what a clock step left beyond reach, or a window of another width,
--         changes the state, and sets dirty[key] to limit; appends to reply what it found, then 0, where the receipt goes:
--         for fits and commit that is reply[found]; give finds all of it behind n
-- fits    sets fits to whether what look found has room for the cost whole, part
-- commit  charges the cost whole, part, of "force" what of it is possible, and sets receipt to what gives it back
-- give    gives back the cost whole, part of the charge with this receipt, as far as it still counts, and sets given to
--         whether that is anything
-- store   sets value to the state, to be written to KEYS[key], or writes it itself; sets ttl to how long it is to be kept, in
--         microseconds, unless what it wrote itself leaves that as it was; 0 where nothing is left to be kept
--
-- They use operation, bound, receipts, key, limit (an index in ARGV), reply and its length n, now and grace; look also uses the
-- cost. A cost is a whole number and a part of its limit's denominator: 0 <= part < denominator. Nothing leaves the integers
-- below 2^53 before the year 2050, no 16-digit number goes through tostring or "..", and a reply holds integers only. Those
-- that are stored are printed by %d, twice as fast as what prints a fraction, and in parts, for it is of 32 bits where
-- a long of C is; and so are those that go to commands, which would print a fraction too.
--
-- What a script run makes, closures and tables, costs more than what it computes. So the parts are no functions,
-- tables are made with all their fields, and a number of ARGV is written back when it is first read as one.
local KEYS, ARGV, now, margin, grace = KEYS, ARGV, now, margin, grace -- those of lua/plain.lua, which comes before this
if short then
  local asked, run = ARGV, {'decide', #KEYS, 1, 0, 1, 5, ARGV[3], '0'}
  ARGV = {12, '0', '0', '0', 'token_bucket', '0', 1, asked[2], '0', '0', reach}
  for key = 1, asked[4] and #KEYS or 1 do
    if asked[4] then
      local most = asked[key + 3] + 0
      run = most == 1 and {'decide', 1, 1, 0, key, 5, asked[3], '0'} or {'atmost', 1, 1, 0, most, key, 5, asked[3], '0'}
    end
    for i = 1, #run do
      ARGV[#ARGV + 1] = run[i]
    end
  end
end
local states, dirty, reply, n = {false, false, false, false}, {false, false, false, false}, {0, 0, 0, 0, 0, 0, 0}, 0
local numbers = {} -- of a sliding log: see there
local values = values or {false} -- as read; of what is missing after all were read at once, the key may be of another type, and is read again
local shared -- what the parts of an algorithm make once for all keys
-- Of each charge of a request: key, limit, cost, its part, receipt to be given back, and where in the reply that of the charge goes,
-- 0 if it does not fit.
local charges
local at, last = ARGV[1] + 0, #ARGV

if ARGV[3] ~= '0' and (now < ARGV[2] + 0 or now >= ARGV[3] + 0) then
  return {-1, now}
end

while at <= last do
  local begun, operation, times, count, bound = at, ARGV[at], ARGV[at + 1] + 0, ARGV[at + 2] + 0, 1
  local receipts, decided, upto = ARGV[at + 3] == '1', 0, times
  at = at + 4
  if operation == 'atmost' or operation == 'reserve' then
    bound, at = ARGV[at] + 0, at + 1
  end
  if count == 1 and operation == 'decide' then
    local limit = ARGV[at + 1] + 0
    local algorithm = ARGV[limit]
    ARGV[limit + 2] = ARGV[limit + 2] + 0
    --: run
  end
  if decided == times then
    at = at + 4
  else
    charges = charges or {0, 0, 0, 0, 0, 0}
    for c = 1, count * 6, 6 do
      local limit = ARGV[at + 1] + 0
      charges[c], charges[c + 1] = ARGV[at] + (decided - 1) * count, limit
      charges[c + 2], charges[c + 3] = ARGV[at + 2] + 0, ARGV[at + 3] + 0
      ARGV[limit + 2] = ARGV[limit + 2] + 0
      at = at + 4
      if operation == 'give' then
        charges[c + 4], at = ARGV[at] + 0, at + 1
      end
    end
  end

  for _ = decided + 1, upto do
    local verdict, admitted = 0, operation ~= 'peek'
    n = n + 1
    local head = n
    for i = 1, count do
      local c = i * 6 - 5
      local key, limit, whole, part = charges[c] + count, charges[c + 1], charges[c + 2], charges[c + 3]
      local algorithm, before = ARGV[limit], n
      charges[c] = key
      --: look
      if operation == 'give' then
        n, admitted = before, false
        local receipt, given = charges[c + 4], false
        --: give
        if given then
          verdict, dirty[key] = verdict + 1, limit
        end
      else
        local found, fits = n, true
        charges[c + 5] = n
        if operation ~= 'atmost' and operation ~= 'force' then
          --: fits
        end
        if not fits then
          verdict, charges[c + 5] = verdict + math.floor(2 ^ (i - 1)), 0
          admitted = admitted and ARGV[limit + 1] == '1'
        end
      end
    end

    local totals
    if operation == 'atmost' then
      -- All of the bound, mostly. Else ever smaller powers of two times the costs, so that it only ever adds and compares.
      -- A sum stays at 100 years, which never fits: the bound is no bound on those of shadows.
      local step, steps, sums, plus = bound, nil, {}, nil
      totals = {}
      for i = 1, count do
        local c = i * 6 - 5
        local whole, part, denominator = charges[c + 2] * bound, charges[c + 3] * bound, ARGV[charges[c + 1] + 2]
        if part > 9007199254740991 then
          step = bound + 1 -- is not exact, and not tried
        elseif part > 0 then
          local rest = part % denominator
          whole, part = whole + math.floor((part - rest) / denominator), rest
        end
        sums[i], totals[i] = {math.min(whole, 3155760000000000), part}, {0, 0}
      end
      while step >= 1 do
        local all = verdict + step <= bound
        for i = 1, count do
          local c = i * 6 - 5
          local key, limit, found = charges[c], charges[c + 1], charges[c + 5]
          local algorithm = ARGV[limit]
          local whole, part, fits = sums[i][1], sums[i][2], false
          --: fits
          all = all and (fits or ARGV[limit + 1] == '1')
        end
        if all then
          verdict, totals = verdict + step, sums
        end
        if verdict == bound then
          break
        end
        if steps then
          step = math.floor(step / 2)
        else
          plus = function(limit, whole, part, more, more_part)
            whole, part = whole + more, part + more_part
            if part > 0 and part >= ARGV[limit + 2] then
              whole, part = whole + 1, part - ARGV[limit + 2]
            end
            return {math.min(whole, 3155760000000000), part}
          end
          step, steps = 1, {}
          for i = 1, count do
            steps[i] = {{charges[i * 6 - 3], charges[i * 6 - 2]}}
          end
          while step * 2 <= bound do
            step = step * 2
            for i = 1, count do
              local s = steps[i]
              local most = s[#s]
              s[#s + 1] = plus(charges[i * 6 - 4], most[1], most[2], most[1], most[2])
            end
          end
        end
        sums = {}
        for i = 1, step >= 1 and count or 0 do
          local add = steps[i][#steps[i]]
          steps[i][#steps[i]] = nil
          sums[i] = plus(charges[i * 6 - 4], totals[i][1], totals[i][2], add[1], add[2])
        end
      end
      for i = 1, count do
        local c = i * 6 - 5
        local key, limit, found = charges[c], charges[c + 1], charges[c + 5]
        if ARGV[limit + 1] == '1' then
          local algorithm = ARGV[limit]
          local whole, part, fits = totals[i][1], totals[i][2], false
          --: fits
          if not fits then
            charges[c + 5] = 0
          end
        end
      end
    end

    if admitted then
      for i = 1, count do
        local c = i * 6 - 5
        local key, limit, whole, part, found = charges[c], charges[c + 1], charges[c + 2], charges[c + 3], charges[c + 5]
        local algorithm = ARGV[limit]
        if totals then
          whole, part = totals[i][1], totals[i][2]
        end
        if found > 0 and (whole > 0 or part > 0) then
          local receipt
          --: commit
          reply[found], dirty[key] = receipt, limit
        end
      end
    end
    reply[head] = verdict
  end
  if upto < times then
    ARGV[begun + 1], ARGV[begun + 4], at = times - upto, charges[1] + 1, begun
  end
end

local lasts, lasting
for key = 1, #KEYS do
  local limit = dirty[key]
  if limit then
    local algorithm, value, ttl = ARGV[limit], nil, nil
    --: store
    if ttl == 0 then
      redis.call('DEL', KEYS[key])
    elseif ttl then
      ttl = (ttl - ttl % 1000) / 1000 + 1 + margin
      if ttl ~= lasts then
        lasts, lasting = ttl, string.format(ttl < 2147483648 and '%d' or '%.0f', ttl)
      end
      if value then
        redis.call('SET', KEYS[key], value, 'PX', lasting)
      else
        redis.call('PEXPIRE', KEYS[key], lasting)
      end
    end
  end
end
for i = n + 1, #reply do
  reply[i] = nil
end
return reply
