-- The functions of fair queueing: accounts of children, clocks of parents, ranks of ready nodes. Each
-- account is in microseconds of a weight of 1, or of a hundredth of the parent's limit if that is
-- above 100. So no account reaches its bound within 2.5 years without an idle moment.

-- accounts caches the key, false for a missing field. moved marks what the end writes of it.
local accounts, moved = {}, {}
scope.accounts, scope.moved = accounts, moved

local function account(field)
  if accounts[field] == nil then
    local value = scope.since > 0 and call('HGET', KEYS[5], field)
    accounts[field] = value and value + 0
  end
  return accounts[field]
end

local function set_account(field, value)
  if scope.since == 0 then
    scope.since, scope.touched[5] = scope.now, true
    call('DEL', KEYS[5]) -- Redis may have lost the scope alone
    accounts.since, moved.since = scope.now, true -- keeps the key, and so its time to live
  end
  value = value and math.min(value, 8000000000000000)
  if account(field) ~= value then
    accounts[field], moved[field] = value, true
  end
end

-- Those who wait in the background, and who did when they were granted their lease, have accounts and
-- clocks of their own: the fields, the mark of a debt, and the first digit of a rank below the floor and
-- above it.
local front = {account = 'a:', clock = 'c:', debt = '  ', below = '0', above = '1'}
local rear = {account = 'a:!', clock = 'c:!', debt = ' !', below = '2', above = '3'}

local function class_of(r)
  return r.place < '5' and front or rear
end

-- A lease may last for years. The quotient comes first, so that no integer overflows in Lua 5.4.
local function cost(held, weight, limit, share)
  return math.min(1000000000000000,
    math.ceil(held * (weight * 100 / (share * math.max(limit, 100)))))
end

-- terms returns the weight, share and floor of a record at a node.
local function terms(r, node)
  for i = 1, #r.levels, 3 do
    if r.levels[i] == node then
      local share, floor = string.match(r.terms,
        '^' .. string.rep('%d+,%d+,', (i - 1) / 3) .. '(%d+),(%d+)')
      return r.levels[i + 1] + 0, (share or 1) + 0, (floor or 0) + 0
    end
  end
  return 1, 1, 0
end

-- rank_at returns the rank of a ready child whose head is r. A new account starts at the clock. An old
-- one is at most two such leases behind it. That of a child below its floor is not ahead.
local function rank_at(child, r, parent, limit)
  local weight, share, floor = terms(r, child)
  local class = class_of(r)
  local field, clock = class.account .. child, account(class.clock .. parent) or 0
  local used = (get('u:' .. child) or 0) + 0
  local held = cost(scope.hold, used + weight, limit, share)
  local own = math.max(account(field) or clock, clock - 2 * held)
  if used < floor then
    set_account(field, math.min(own, clock))
    return class.below .. string.rep('0', 16) .. r.place
  end
  set_account(field, own)
  return string.format('%s%016.0f', class.above, own + held) .. r.place
end

-- charge adds a lease that has ended to the accounts of its nodes.
local function charge(r)
  local class = class_of(r)
  for i = 4, scope.since > 0 and #r.levels or 0, 3 do
    local field, weight, share = class.account .. r.levels[i], terms(r, r.levels[i])
    local own = account(field) or account(class.clock .. r.levels[i - 3]) or 0
    local held = scope.now - math.max(r.granted + 0, scope.since)
    set_account(field, own + cost(held, weight, r.levels[i - 1] + 0, share))
  end
end

-- advance moves the clocks at the parents of a waiter's nodes, before it is granted a lease, and
-- closes idle accounts that they pass.
local function advance(r)
  local class = class_of(r)
  for i = 4, #r.levels, 3 do
    local node, parent = r.levels[i], r.levels[i - 3]
    local weight, share = terms(r, node)
    local clock = (account(class.account .. node) or 0) +
      math.floor(cost(scope.hold, weight, r.levels[i - 1] + 0, share) / 2)
    local ranked = string.find(get('n:' .. node) or '', ' [13]') -- and not below its floor
    if ranked and clock > (account(class.clock .. parent) or 0) then
      set_account(class.clock .. parent, clock)
      local from = '~' .. parent .. class.debt
      local to = string.format('(%s%016.0f!', from, clock)
      for _, debt in ipairs(call('ZRANGEBYLEX', KEYS[3], '[' .. from, to, 'LIMIT', '0', '2')) do
        call('ZREM', KEYS[3], debt)
        local child = string.sub(debt, #from + 18)
        local own = account(class.account .. child)
        if own and own <= clock and not get('u:' .. child) and not get('n:' .. child) then
          set_account(class.account .. child, false)
        end
      end
    end
  end
end

-- settle_idle closes the accounts of a node that neither waits nor holds, or keeps them as debts while
-- they are ahead of the clock.
local function settle_idle(node, parent)
  for _, class in ipairs({front, rear}) do
    local own, debts = account(class.account .. node), '~' .. parent .. class.debt
    if own and own > (account(class.clock .. parent) or 0) and
      call('ZLEXCOUNT', KEYS[3], '[' .. debts, '(' .. debts .. ':') < 64 + scope.holders + scope.places then
      call('ZADD', KEYS[3], '0', string.format('%s%016.0f %s', debts, own, node))
      scope.touched[3] = true -- the key may be new
    elseif own then
      set_account(class.account .. node, false)
    end
  end
end

shares = {rank_at = rank_at, charge = charge, advance = advance, settle_idle = settle_idle}
