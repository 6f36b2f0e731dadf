-- Grants, renews and releases the leases of a semaphore, and queues who waits for one. All that share an outermost key are
-- one scope.
--
-- KEYS   holders (sorted set: id, end of its lease), records (hash), waiters (sorted set, by text: "node ticket id"),
--        patience (sorted set: id, end of the waiter's lease; "!id", until when it is known that it was forced out),
--        ready (sorted set, by text: "node ticket child")
-- ARGV   operation, then
--        acquire  id, waiter's lease, most waiters or 0 not to wait, priority 0 to 9, longest hold or 0, lease, channel,
--                 metadata, then for each level, outermost first: node, weight, limit
--        renew    lease, ids
--        release  ids
--        force    ids
--        list     nothing
--        Times are in microseconds. No text holds a space.
-- Reply  acquire  1 if held, 0 if waiting, -1 if there is no room, -2 if the queue is full, -3 if it was forced out; token
--                 if held, else the last one given; position in the queue from 0; for who was refused, or waits first,
--                 time until the first lease of the scope ends, else or if there is none -1; mean hold; time until the
--                 lease ends, 0 if none is held; weight in use at each level
--        renew    for each id: time until its lease ends, 0 if it is unknown, -1 if it was forced out
--        release, force  for each id: 1 if it was held, 2 if it waited, 0 if it is unknown
--        list     now; for each holder: id, time until its lease ends, record; for each waiter: id, -1, record
--
-- A node is a level's key. Who waits, waits at the node of his innermost level. A node is ready if its head, the first that
-- waits at it or at a node ready below it, has room at it; then it stands in its parent's queue by its head's ticket. So a
-- node without room holds up nobody elsewhere, and every step is logarithmic in the number of waiters. Whoever frees
-- room grants it to the heads of the outermost nodes, by a short lease that they renew, and tells their channels: "id token
-- lease", and the weight in use at the innermost level; if there is more room than it grants at once, it tells the next
-- "id 0 0 0", who asks again then. Whoever was forced out is told "!id". A channel with a brace lies in the slot of the scope,
-- and is told by a sharded message.
--
-- A record is "ticket token granted" and what was asked for: "until lease channel metadata" and of each level "node weight
-- limit"; the token of who waits is 0. Other fields of the hash: u:node the weight in use, n:node the ticket by which the node
-- is ready, and scope, which is "now,ahead,token,ticket,hold,nodes,next,alive,evicted": the last time, and how far the
-- scope's clock is ahead of Redis's, because it does not go back; the last token and ticket; the mean hold; how many fields
-- n:node there are; a time before which no lease ends, of holders and waiters; one after which none does, and until which
-- the hash lives; a time after which nobody is known to have been forced out.
--
-- Most of what a script costs here is numbers turned into text, texts taken apart, calls, and the functions that it makes;
-- hence the one field for what every operation needs, and the two steps of a hand-off by themselves.
--
-- A line of two dashes, a colon and a word stands for the file of that name in lua/lease.

local call, operation = redis.call, ARGV[1]

-- The hash, of which no field is read twice, and all are written at the end. A field that is not there is false.
local fields, changed = {}, {}

do
  local names = {'scope'}
  if operation == 'acquire' then
    names[2] = ARGV[2]
    for i = 10, #ARGV, 3 do
      names[#names + 1] = 'u:' .. ARGV[i]
    end
  elseif operation ~= 'list' then
    for i = operation == 'renew' and 3 or 2, math.min(#ARGV, 100) do
      names[#names + 1] = ARGV[i]
    end
  end
  local values = call('HMGET', KEYS[2], unpack(names))
  for i = 1, #names do
    fields[names[i]] = values[i]
  end
end

local last, ahead, token, ticket, hold, nodes, next_end, alive, last_evicted =
  string.match(fields.scope or '0,0,0,0,0,0,0,0,0', '(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)')

-- A number of 16 digits, which ".." would round.
local function text(number)
  return string.format('%.0f', number)
end

-- What is text here stays text until it changes.
if last - now > ahead + 0 then
  ahead = text(last - now)
end
now = now + ahead
hold = hold + 0
nodes = nodes + 0
local at = text(now)

-- All keys live until a minute after alive, which is set half a minute later than is needed, so that this is seldom. A key
-- that may be new is touched.
local touched, busy = {}, false -- busy: surely somebody holds or waits

local function bound(ends)
  if next_end == '0' or ends < next_end + 0 then
    next_end = text(ends)
  end
end

local function put(key, ends, id, known)
  call('ZADD', KEYS[key], ends, id)
  touched[key], busy = touched[key] or not known, true
  bound(ends)
  if ends > alive + 0 then
    alive, touched = text(ends + 30000000), {true, true, true, true, true}
  end
end

local function next_token()
  token = now > token + 0 and at or text(token + 1)
  return token
end

-- The mean goes an eighth of the way to every hold.
local function held_since(granted)
  local took = now - granted
  hold = math.max(1, hold == 0 and took or hold + math.floor((took - hold) / 8))
end

local reply
--: handoff
--: enqueue
if not reply then
--: scope
--: operations
end

-- What is idle is deleted.
if not busy and call('ZCARD', KEYS[1]) == 0 and call('ZCARD', KEYS[4]) == 0 then
  call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
  return reply
end
local kept, gone = {'HSET', KEYS[2], 'scope'}, {'HDEL', KEYS[2]}
kept[4] = string.format('%s,%s,%s,%s,%.0f,%.0f,%s,%s,%s',
  at, ahead, token, ticket, hold, nodes, next_end, alive, last_evicted)
for field in pairs(changed) do
  local value = fields[field]
  if value then
    kept[#kept + 1], kept[#kept + 2] = field, value
  else
    gone[#gone + 1] = field
  end
  if #kept > 1000 then
    call(unpack(kept))
    kept = {'HSET', KEYS[2]}
  end
  if #gone > 1000 then
    call(unpack(gone))
    gone = {'HDEL', KEYS[2]}
  end
end
if #kept > 2 then
  call(unpack(kept))
end
if #gone > 2 then
  call(unpack(gone))
end
local ttl = text(math.floor((alive - now) / 1000) + 60000 + margin)
for key, is in pairs(touched) do
  if is then
    call('PEXPIRE', KEYS[key], ttl)
  end
end
return reply
