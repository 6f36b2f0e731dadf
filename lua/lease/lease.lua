-- Grants, renews and releases the leases of a semaphore, and queues callers for them. One scope is
-- all nodes that share an outermost key; a node is the key of one level.
--
-- KEYS   holders   sorted set: id, end of its lease
--        records   hash, see below; a text while it is that of lua/lease/lone.lua
--        waiters   sorted set, by text: "node ticket id"; "~node rank child" for a ready child;
--                  "~node  account child" for a debt, "~node !account child" in the background
--        patience  sorted set: id, end of the waiter's place; "!id", end of an eviction mark
--        accounts  hash, while somebody waits, see below
-- ARGV   operation, then its arguments. Times are in microseconds. No text holds a space.
--        acquire   id, patience (negative: in the background), most waiters (0: do not wait; those in the
--                  background count only against their own), milliseconds for which lua/lease/lone.lua
--                  keeps the lease, " 0 lease id request"
--        renew     lease, ids
--        release   ids
--        force     ids
--        list      nothing
-- Reply  acquire   status: 1 held, 0 waiting, -1 no room, -2 queue full, -3 evicted;
--                  fencing token if held, otherwise the last one granted;
--                  position in the queue, from 0;
--                  for a refused caller or a first waiter: time until the scope's first lease ends;
--                  otherwise, or if nothing is held, -1;
--                  mean hold; time until the lease ends, 0 if none is held;
--                  for each level: weight in use
--        renew     for each id: time until its lease ends, 0 if unknown, -1 if evicted
--        release   1 by lua/lease/lone.lua, otherwise 0
--        force     for each id: 1 if it held, 2 if it waited, 0 if unknown
--        list      now; for each holder: id, time until its lease ends, record;
--                  for each waiter: id, -1, record
--
-- A waiter queues at the node of its innermost level, with a ticket: its arrival. In the background that
-- is 5000000000000000 later, behind all others, until the waiter acquires again as one of them. The head
-- of a node is the first waiter at the node or at a ready node below it. A node is ready while its head has
-- room at it; a ready node queues at its parent by its rank. So a full node delays no other node, and
-- every step is logarithmic in the number of waiters.
--
-- Ready nodes share the room at their parent by fair queueing. The account of a node is the time for
-- which it has held slots, divided by its share. A lease is charged when it ends, from the time at
-- which the first account was opened. The rank is 1, the account that the node would have after a
-- mean hold of all that it holds and of its head, and the head's ticket. Below its floor it is 0 and the
-- ticket: such a node comes first. While the head waits in the background, it is 3 for 1 and 2 for 0. What
-- is granted from there counts on accounts and clocks of its own. A node that neither
-- waits nor holds has an account only while that is ahead of the parent's clock: a debt. A grant moves
-- the clock to half a mean hold after the account of the node that got it. A new account starts at the
-- clock. A parent keeps at most 64 more debts than the scope has holders and waiters.
--
-- An operation that frees room grants it to the heads of the outermost nodes and publishes to their
-- channels "id token lease used", used being the weight in use at the innermost level. The granted
-- lease is short, and the caller renews it. If room remains after the most that one script grants,
-- the next waiter gets "id 0 0 0" and acquires again. An evicted id gets "!id".
--
-- A request is "longest lease channel metadata" and for each level, outermost first, "node weight
-- limit". The longest hold is 0 if it has no bound. Unless all shares are 1 and all floors 0, the
-- metadata ends with a semicolon and "share,floor" for each level, with commas between. No node
-- stands twice, and no weight is above its limit. An id that acquires again keeps its nodes and
-- weights. An id "name/rest" ends what an earlier id of that name has at the innermost node: it evicts
-- that, and a slot of the same nodes and weights goes to the new id before all that wait. A record is
-- "ticket token granted request". A waiter's token is 0. Other fields of the
-- hash:
--   u:node  weight in use
--   w:node  "limit,waiters" while somebody waits at or below the node: the limit of the newest caller
--           that named it, which holds for all of them, and their number
--   i:node/name  the id of that name that holds or waits at the innermost node
--   n:node  "parent rank", where and with which rank the node is ready
--   scope   "now,ahead,token,hold,holders,earliest_end,latest_end": the scope's last time, which never
--           steps back, and how far it runs ahead of Redis's clock; the last token; the mean hold; the
--           number of holders; a time before which no lease or place ends, 0 if there is none; a time
--           after which none ends, and until which the hash lives. The last two are in milliseconds.
--           While there are waiters or marks, a second line "ticket,nodes,places,evicted_until,since"
--           follows: the last arrival; the number of fields n:node; the number of waiters and marks; a
--           time after which no mark counts; when the first account was opened, or 0
-- Fields of the accounts: a:node the account of a node, c:node the clock of a parent; a:!node and c:!node
-- those of the background; since.
--
-- Commands, strings, tables and captured variables cost most of a run. So the commonest steps return
-- before any function exists, a step defines only the functions that it may need, and these share one
-- table, scope. What nobody asks for is neither read nor written.
--
-- The script returns its reply, and true if the records are no hash any more.
--
-- A line of two dashes, a colon and a name stands for the file of that name in lua/lease.

local operation, id = ARGV[1], ARGV[2]
local named = id and string.find(id, '/', 1, true)

-- names are the fields that the operation reads in any case. levels is what an acquire asks for: a
-- list of nodes, weights and limits.
local names, lease_time, request, levels = {'scope', nil, nil, nil}, nil, nil, nil
if operation == 'acquire' then
  local time, all, node, weight, limit, inner = string.match(ARGV[6],
    '^ 0 (%S+) %S+ (%S+ %S+ %S+ %S+ (%S+) (%S+) (%S+)(.*))$')
  lease_time, request, levels = time + 0, all, {node, weight, limit}
  names[2], names[3] = id, 'u:' .. node
  if inner ~= '' then
    for node, weight, limit in string.gmatch(inner, '(%S+) (%S+) (%S+)') do
      local n = #levels
      levels[n + 1], levels[n + 2], levels[n + 3] = node, weight, limit
      names[#names + 1] = 'u:' .. node
    end
  end
elseif operation ~= 'list' then
  local from = operation == 'renew' and 3 or 2
  for i = from, math.min(#ARGV, 100) do
    names[i - from + 2] = ARGV[i]
  end
end
local values = call('HMGET', KEYS[2], unpack(names))

local known, expired = values[1], false

local function scope_text(at, ahead, token, hold, holders, earliest_end, latest_end)
  return at .. ',' .. ahead .. ',' .. token .. ',' .. hold .. ',' .. holders .. ',' .. earliest_end ..
    ',' .. latest_end
end

-- Long numbers stay text until they change, which saves printing them.
local last, ahead, token, hold, holders = '0', '0', '0', '0', 0
local earliest_end, latest_end, queue = 0, 0, ''
if known then
  last, ahead, token, hold, holders, earliest_end, latest_end, queue =
    string.match(known, '^(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)(.*)')
  if last - now > ahead + 0 then
    ahead = string.format('%.0f', last - now)
  end
  now, holders = now + ahead, holders + 0
  earliest_end, latest_end = earliest_end + 0, latest_end + 0
  expired = earliest_end * 1000 <= now
end
--: idle

-- scope is what the functions below know and change. fields caches the hash, false for a missing field;
-- changed marks what the end writes of it.
local scope = {
  now = now, at = text(now), token = token, hold = hold, holders = holders,
  earliest_end = earliest_end, latest_end = latest_end,
  ticket = 0, nodes = 0, places = 0, evicted_until = 0, since = 0,
  fields = {}, changed = {},
  -- Every key lives until five minutes after latest_end. latest_end is set half a minute further than
  -- needed, so that most runs set no TTL; touched marks the keys that may be new and need one.
  touched = {false, false, false, false, false},
}
for i = 1, #names do
  scope.fields[names[i]] = values[i]
end
if queue ~= '' then
  local ticket, nodes, places, evicted_until, since =
    string.match(queue, '(%d+),(%d+),(%d+),(%d+),(%d+)')
  scope.ticket, scope.nodes, scope.places = ticket, nodes + 0, places + 0
  scope.evicted_until, scope.since = evicted_until + 0, since + 0
end

local reply = {}
--: record
if not known or expired or operation ~= 'renew' then -- a renewal leaves the queues as they are
--: grant

-- fair returns the functions of fair queueing, which the first step at an inner node defines.
local shares = nil
local function fair()
  if not shares then
--: share
  end
  return shares
end

--: queue
--: drop
  if not known then -- without its hash no holder or waiter can be served
    call('DEL', KEYS[1], KEYS[3], KEYS[4], KEYS[5])
  elseif expired then
--: expire
  end
  if operation == 'acquire' then
--: extend
--: acquire
  elseif operation == 'release' then
--: release
  elseif operation == 'force' then
--: evict
--: force
  elseif operation == 'list' then
--: list
  end
  if scope.places > 0 and scope.moved and next(scope.moved) then
    local kept, gone = {'HSET', KEYS[5]}, {'HDEL', KEYS[5]}
    for field in pairs(scope.moved) do
      local value = scope.accounts[field]
      if value then
        kept[#kept + 1], kept[#kept + 2] = field, string.format('%.0f', value)
      else
        gone[#gone + 1] = field
      end
    end
    for _, command in ipairs({kept, gone}) do
      if #command > 2 then
        call(unpack(command))
      end
    end
  end
end
if operation == 'renew' then
--: extend
--: renew
end

if scope.places == 0 and scope.since > 0 then
  -- A node that requests have placed below different parents may have left one ready.
  for _, member in ipairs(scope.nodes > 0 and call('ZRANGEBYLEX', KEYS[3], '[~', '+') or {}) do
    local child = string.match(member, '^~%S+ %d+ (%S+)$')
    if child then
      scope.fields['n:' .. child], scope.changed['n:' .. child] = false, true
    end
  end
  call('DEL', KEYS[3], KEYS[5])
end
if scope.holders + scope.places == 0 then
  if known then
    call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
    redis.pcall('SET', KEYS[2], scope.token .. vacant, 'PX', token_lives)
  end
  return reply, true
end
local line = scope_text(scope.at, ahead, scope.token, scope.hold, scope.holders, scope.earliest_end,
  scope.latest_end)
if scope.places > 0 then
  line = line .. string.format('\n%s,%d,%d,%.0f,%.0f', scope.ticket, scope.nodes, scope.places,
    scope.evicted_until, scope.since)
end
local kept, gone = {'HSET', KEYS[2], 'scope', line, nil, nil, nil, nil}, {'HDEL', KEYS[2], nil, nil}
for field in pairs(scope.changed) do
  local value = scope.fields[field]
  if value then
    kept[#kept + 1], kept[#kept + 2] = field, value
  else
    gone[#gone + 1] = field
  end
end
call(unpack(kept))
if #gone > 2 then
  call(unpack(gone))
end
for key, new in pairs(scope.touched) do
  if new and (key == 2 or (key == 1 and scope.holders or scope.places) > 0) then
    local ttl = scope.latest_end - math.floor(now / 1000) + token_lives
    call('PEXPIRE', KEYS[key], string.format('%.0f', ttl))
  end
end
return reply
