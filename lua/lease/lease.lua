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
-- before the functions of the others exist, and what nobody asks for is neither read nor written.
--
-- The script returns its reply, and true if the records are no hash any more.
--
-- A line of two dashes, a colon and a name stands for the file of that name in lua/lease.

local call, operation, id = redis.call, ARGV[1], ARGV[2]
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

local scope, expired = values[1], false

local function scope_text(at, ahead, token, hold, holders, earliest_end, latest_end)
  return at .. ',' .. ahead .. ',' .. token .. ',' .. hold .. ',' .. holders .. ',' .. earliest_end ..
    ',' .. latest_end
end

-- Long numbers stay text until they change, which saves printing them.
local last, ahead, token, hold, holders = '0', '0', '0', '0', 0
local earliest_end, latest_end, queue = 0, 0, ''
if scope then
  last, ahead, token, hold, holders, earliest_end, latest_end, queue =
    string.match(scope, '^(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)(.*)')
  if last - now > ahead + 0 then
    ahead = string.format('%.0f', last - now)
  end
  now, holders = now + ahead, holders + 0
  earliest_end, latest_end = earliest_end + 0, latest_end + 0
  expired = earliest_end * 1000 <= now
end
--: idle

local at = text(now)
-- fields caches the hash, false for a missing field. It is written at the end.
local fields, changed = {}, {}
for i = 1, #names do
  fields[names[i]] = values[i]
end
local ticket, nodes, places, evicted_until, since = 0, 0, 0, 0, 0
if queue ~= '' then
  ticket, nodes, places, evicted_until, since = string.match(queue, '(%d+),(%d+),(%d+),(%d+),(%d+)')
  nodes, places, evicted_until, since = nodes + 0, places + 0, evicted_until + 0, since + 0
end

-- Every key lives until five minutes after latest_end. latest_end is set half a minute further than
-- needed, so that most runs set no TTL; touched marks the keys that may be new and need one.
local touched = {false, false, false, false, false}

-- put adds a member to the holders or to patience, or moves its end. It returns 1 if it is new.
local function put(key, ends, member)
  local milliseconds = math.floor(ends / 1000)
  if earliest_end == 0 or milliseconds < earliest_end then
    earliest_end = milliseconds
  end
  if milliseconds >= latest_end then
    latest_end, touched = milliseconds + 30000, {true, true, true, true, true}
  end
  touched[key] = touched[key] or (key == 1 and holders or places) == 0
  return call('ZADD', KEYS[key], text(ends), member)
end

local reply = {}
--: record
if idle and scope and operation == 'renew' then
  renew()
else
--: grant
--: share
--: queue
--: operations
  if places > 0 and next(moved) then
    local kept, gone = {'HSET', KEYS[5]}, {'HDEL', KEYS[5]}
    for field in pairs(moved) do
      if accounts[field] then
        kept[#kept + 1], kept[#kept + 2] = field, string.format('%.0f', accounts[field])
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

if places == 0 and since > 0 then
  call('DEL', KEYS[3], KEYS[5])
end
if holders + places == 0 then
  if scope then
    call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
    redis.pcall('SET', KEYS[2], token .. vacant, 'PX', token_lives)
  end
  return reply, true
end
scope = scope_text(at, ahead, token, hold, holders, earliest_end, latest_end)
if places > 0 then
  scope = scope ..
    string.format('\n%s,%d,%d,%.0f,%.0f', ticket, nodes, places, evicted_until, since)
end
local kept, gone = {'HSET', KEYS[2], 'scope', scope, nil, nil, nil, nil}, {'HDEL', KEYS[2], nil, nil}
for field in pairs(changed) do
  local value = fields[field]
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
for key, new in pairs(touched) do
  if new and (key == 2 or (key == 1 and holders or places) > 0) then
    local ttl = latest_end - math.floor(now / 1000) + token_lives
    call('PEXPIRE', KEYS[key], string.format('%.0f', ttl))
  end
end
return reply
