-- Decides requests in order, each all or nothing.
--
-- KEYS   the key of each state that is charged; buckets of one bundle each have its key
-- ARGV   the index at which the runs begin; the start and the end of the time for which the limits
--        hold, in microseconds, or 0 and 0 if they always hold; 1 to read all keys with one command
--        (for several keys with short values), otherwise 0; limits; runs.
--        A limit: algorithm; 1 for a shadow, otherwise 0; denominator of its costs' fractions, 0 if
--        they have none; the algorithm's own parameters.
--        A run is requests that differ only in their keys: operation; number of requests; number of
--        charges, at most 16; 1 if the charges may be refunded, otherwise 0; for "atmost", "reserve"
--        and "expire" the bound; for each charge of the first request: index of its key in KEYS,
--        index of its limit in ARGV, cost, the cost's fraction, for "give" and "expire" the receipt.
--        The next request has the next keys: add the number of charges to the index of each key.
--        The charges of one request have different states. The buckets of one bundle have different
--        labels.
-- Reply  for each request: verdict; for each charge, except of "give" and "expire", its algorithm's reply.
--        If the limits do not hold now: -1, now. The script then does nothing.
--
-- decide   Charges all or nothing. Verdict: the sum of 2^(i-1) over the violated charges i.
-- peek     Answers as decide does and charges nothing.
-- reserve  As decide, but charges may take effect later, by at most the bound in microseconds.
-- atmost   Charges every cost n times, for the largest n <= bound that fits. Verdict: n.
-- give     Refunds the cost of each charge as far as it still counts. Verdict: the number of
--          charges that got a refund. The receipt -2 refunds whatever is used of a quota (a fixed
--          window, a calendar or a grant) or a token bucket, up to the cost.
-- expire   As give, for holds that ended at the bound, in microseconds. A hold that ended before its
--          window did leaves no debt to the next one.
-- force    Charges each cost, whether it fits or not, up to its algorithm's debt. Verdict: 0.
--
-- A shadow never denies a request. It is charged if it fits and the request is admitted.
-- confirm, a function of the script around this file, if there is one, is asked once every charge fits, and
-- before any is spent. If it returns false, nothing is charged.
--
-- A line of two dashes, a colon and a word stands for the parts of that name, one of which runs:
--
--   if algorithm == 'window' then
--     local <the Names of lua/algorithm/window.lua> = unpack(states[key])
--     <the part, if the file has one>
--     states[key] = {<the Names>}
--   elseif algorithm == 'block' then ...
--
-- Names are the limit and the state of an algorithm. The assembler puts the part limit before look and
-- before store, because another limit may have been asked last. If states[key] is false, it puts get and read
-- before look too. If look sets changed, dirty[key] becomes the limit. A line of two dashes, an equals sign
-- and a word stands for another part of the same file, or for the file of that name, such as
-- lua/bundle/bundle.lua; put stands for lua/decide/put.lua. The parts are:
--
-- limit   reads the limit: the numbers behind its denominator, which are ARGV[p], ARGV[p + 1] and so on.
--         For lua/decide/straight.lua, which goes on behind them, it sets size to how many these are
-- get     sets value to the text of KEYS[key], or false; without this part that is values[key], or what
--         GET replies
-- read    reads the state from value
-- look    finds what the state is now under the limit. Only a clock step or another width of the window
--         changes the state here, and sets changed to true. Appends the charge's reply as it is before
--         the charge, with 0 for the receipt; what decides puts the receipt of commit there
-- fits    sets fits to whether the cost whole, part fits on what look found
-- force   lowers the cost to what the algorithm's debt has room for
-- commit  charges the cost whole, part; sets receipt
-- give    refunds the cost whole, part of the charge with this receipt, as far as it still counts;
--         sets given to whether that is more than nothing
-- store   sets ttl to the time to live in microseconds, 0 if nothing is left, or nothing if it stays; and
--         - value to the text of KEYS[key];
--         - or value to its first part, and tail to the part from place on, if the rest between stays;
--         - or bundles to the text by key, and renewed to whether its time to live or its length changes
--
-- The parts share operation, bound, receipts, key, reply, its length n, now and grace. look also uses the
-- cost: a whole number and a fraction of the limit's denominator, 0 <= part < denominator. The fraction of
-- a Block's cost is a time.
--
-- Until the year 2050 every number is an integer below 2^53, also a time and two lengths of 100 years.
-- A 16-digit number never goes through tostring or "..", and a reply holds integers only. What is printed
-- often is printed by %d, which takes half as long as %.0f; a number above 32 bits then in two pieces,
-- because a C long may have 32 bits.
--
-- Closures and tables cost more than the arithmetic. So the parts are not functions, tables are
-- created with all their fields, and a number in ARGV is converted in place at first use.
local KEYS, ARGV, grace = KEYS, ARGV, 4194304
local sub, format = string.sub, string.format
local states, dirty = {false, false, false, false}, {false, false, false, false}
local bundles, renewed = {}, {} -- those to be written, by name; whether save is to renew them
local reply, n = {0, 0, 0, 0, 0, 0, 0}, 0
-- The values as read. A missing one is read again by get, because its key may be of another type.
local values = {false}
if ARGV[4] == '1' then
  values = redis.pcall('MGET', unpack(KEYS))
  if values.err then -- the user may not use MGET; the keys are read one by one
    values = {false}
  end
end
-- For each charge of a request: key, limit, cost, its fraction, receipt to refund, and the index of
-- its receipt in reply, 0 if the charge does not fit.
local charges
local at, last = ARGV[1] + 0, #ARGV

if ARGV[3] ~= '0' and (now < ARGV[2] + 0 or now >= ARGV[3] + 0) then
  return {-1, now}
end

while at <= last do
  local operation, requests, count, receipts, bound = ARGV[at], ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] == '1', 1
  at = at + 4
  local gives = operation == 'give' or operation == 'expire'
  if operation == 'atmost' or operation == 'reserve' or operation == 'expire' then
    bound, at = ARGV[at] + 0, at + 1
  end
  charges = charges or {0, 0, 0, 0, 0, 0}
  for c = 1, count * 6, 6 do
    local limit = ARGV[at + 1] + 0
    charges[c], charges[c + 1] = ARGV[at] - count, limit
    charges[c + 2], charges[c + 3] = ARGV[at + 2] + 0, ARGV[at + 3] + 0
    ARGV[limit + 2] = ARGV[limit + 2] + 0
    at = at + 4
    if gives then
      charges[c + 4], at = ARGV[at] + 0, at + 1
    end
  end

  for _ = 1, requests do
    local verdict, admitted = 0, operation ~= 'peek'
    n = n + 1
    local head = n
    for i = 1, count do
      local c = i * 6 - 5
      local key, limit, whole, part = charges[c] + count, charges[c + 1], charges[c + 2], charges[c + 3]
      local algorithm, before = ARGV[limit], n
      charges[c] = key
      --: look
      if gives then
        n, admitted = before, false
        local receipt, given = charges[c + 4], false
        --: give
        if given then
          verdict, dirty[key] = verdict + 1, limit
        end
      else
        local fits = true
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

    local multiple
    if operation == 'atmost' then
      -- multiple returns a cost times a number. It stops at 100 years, which never fit, because shadows do not
      -- bound the number.
      function multiple(times, whole, part, denominator)
        local longest, sum, rest = 3155760000000000, 0, 0
        if part == 0 then
          return times > longest / whole and longest or times * whole, 0
        end
        while times > 0 do
          if times % 2 == 1 then
            sum, rest = sum + whole, rest + part
            if rest >= denominator then
              sum, rest = sum + 1, rest - denominator
            end
          end
          whole, part, times = 2 * whole, 2 * part, math.floor(times / 2)
          if part >= denominator then
            whole, part = whole + 1, part - denominator
          end
          sum, whole = math.min(sum, longest), math.min(whole, longest)
        end
        return sum, rest
      end
      local low, high, times = 0, bound, bound -- low fits, and nothing above high does
      while low < high do
        local all = true
        for i = 1, count do
          local c = i * 6 - 5
          local key, limit, fits = charges[c], charges[c + 1], false
          local algorithm = ARGV[limit]
          local whole, part = multiple(times, charges[c + 2], charges[c + 3], ARGV[limit + 2])
          --: fits
          all = all and (fits or ARGV[limit + 1] == '1')
        end
        if all then low = times else high = times - 1 end
        times = low + math.ceil((high - low) / 2)
      end
      verdict = low
    end

    if admitted and confirm then
      admitted = confirm()
    end
    if admitted then
      for i = 1, count do
        local c = i * 6 - 5
        local key, limit, whole, part, found = charges[c], charges[c + 1], charges[c + 2], charges[c + 3], charges[c + 5]
        local algorithm, fits = ARGV[limit], true
        if multiple then
          whole, part = multiple(verdict, whole, part, ARGV[limit + 2])
          if ARGV[limit + 1] == '1' then
            --: fits
          end
        end
        if fits and found > 0 and (whole > 0 or part > 0) then
          local receipt
          if operation == 'force' then
            --: force
          end
          --: commit
          reply[found], dirty[key] = receipt, limit
        end
      end
    end
    reply[head] = verdict
  end
end

local printed, expiry -- the last time to live
for key = 1, #KEYS do
  local limit = dirty[key]
  if limit then
    local algorithm, value, ttl, tail, place = ARGV[limit], nil, nil, nil, nil
    --: store
    ttl = ttl or 'keep' -- its length may change
    --: put
  end
end
for key = 1, next(bundles) and #KEYS or 0 do
  local name = KEYS[key]
  if bundles[name] then
    save(KEYS, key, bundles[name], now, margin, renewed[name])
    bundles[name] = nil
  end
end
for i = n + 1, #reply do
  reply[i] = nil
end
return reply
