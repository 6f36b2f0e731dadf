-- Grants, renews and releases the leases of a semaphore, and queues callers for them. One scope is
-- all nodes that share an outermost key; a node is the key of one level.
--
-- KEYS   holders   sorted set: id, end of its lease
--        records   hash, see below
--        waiters   sorted set, by text: "node ticket id"
--        patience  sorted set: id, end of the waiter's place; "!id", end of an eviction mark
--        ready     sorted set, by text: "node ticket child"
-- ARGV   operation, then its arguments. Times are in microseconds. No text holds a space.
--        acquire   id, patience, most waiters (0: do not wait), priority 0 to 9, longest hold or 0,
--                  lease, channel, metadata; then for each level, outermost first: node, weight,
--                  limit. An id that acquires again keeps its nodes and weights.
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
--        release   for each id: 1 if it held, 2 if it waited, 0 if unknown; also the reply of force
--        list      now; for each holder: id, time until its lease ends, record;
--                  for each waiter: id, -1, record
--
-- A waiter queues at the node of its innermost level. The head of a node is the first waiter at the
-- node or at a ready node below it. A node is ready while its head has room at it; a ready node
-- queues at its parent with its head's ticket. So a full node delays no other node, and every step
-- is logarithmic in the number of waiters.
--
-- An operation that frees room grants it to the heads of the outermost nodes and publishes to their
-- channels "id token lease used", used being the weight in use at the innermost level. The granted
-- lease is short, and the caller renews it. If room remains after the most that one script grants,
-- the next waiter gets "id 0 0 0" and acquires again. An evicted id gets "!id". A channel with a
-- brace lies in the scope's hash slot and gets a sharded message.
--
-- A record is "ticket token granted", then "longest lease channel metadata" as requested, then for
-- each level "node weight limit". A waiter's token is 0. Other fields of the hash:
--   u:node  weight in use
--   n:node  ticket with which the node is ready
--   scope   "now,ahead,token,ticket,hold,nodes,earliest_end,latest_end,evicted_until":
--           the scope's last time, which never steps back, and how far it runs ahead of Redis's
--           clock; the last token and ticket; the mean hold; the number of fields n:node; a time
--           before which no lease or place ends; a time after which none does, until which the hash
--           lives; a time after which no eviction mark counts
--
-- Printing numbers, parsing texts, commands and closures cost most of a run. So one field holds
-- what every operation needs, and the two steps of a busy queue run before the closures are made.
--
-- A line of two dashes, a colon and a name stands for the file of that name in lua/lease.

local call, operation = redis.call, ARGV[1]

-- fields caches the hash: each field is read once, false if missing, and written at the end.
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

local last, ahead, token, ticket, hold, nodes, earliest_end, latest_end, evicted_until =
  string.match(fields.scope or '0,0,0,0,0,0,0,0,0',
    '(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)')

-- text prints any integer below 2^53: ".." rounds to 14 digits, and Redis 7.2 may print a large
-- number with an exponent, which Lua 5.4 reads back as a float.
local function text(number)
  return string.format('%.0f', number)
end

-- The fields of scope stay text until they change, which saves printing them.
if last - now > ahead + 0 then
  ahead = text(last - now)
end
now = now + ahead
hold = hold + 0
nodes = nodes + 0
local at = text(now)

-- Every key lives until a minute after latest_end. latest_end is set half a minute further than
-- needed, so that most runs set no TTL; touched marks the keys that may be new and need one. busy
-- tells that the scope surely has a holder or a waiter.
local touched, busy = {}, false

local function note_end(ends)
  if earliest_end == '0' or ends < earliest_end + 0 then
    earliest_end = text(ends)
  end
end

local function put(key, ends, id, known)
  call('ZADD', KEYS[key], ends, id)
  touched[key], busy = touched[key] or not known, true
  note_end(ends)
  if ends > latest_end + 0 then
    latest_end, touched = text(ends + 30000000), {true, true, true, true, true}
  end
end

local function next_token()
  token = now > token + 0 and at or text(token + 1)
  return token
end

-- The mean moves by an eighth of the distance to each hold.
local function record_hold(granted)
  local held = now - granted
  hold = math.max(1, hold == 0 and held or hold + math.floor((held - hold) / 8))
end

local reply
--: handoff
--: enqueue
if not reply then
--: scope
--: operations
end

if not busy and call('ZCARD', KEYS[1]) == 0 and call('ZCARD', KEYS[4]) == 0 then
  call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
  return reply
end
local kept, gone = {'HSET', KEYS[2], 'scope'}, {'HDEL', KEYS[2]}
kept[4] = string.format('%s,%s,%s,%s,%.0f,%.0f,%s,%s,%s',
  at, ahead, token, ticket, hold, nodes, earliest_end, latest_end, evicted_until)
for field in pairs(changed) do
  local value = fields[field]
  if value then
    kept[#kept + 1], kept[#kept + 2] = field, value
  else
    gone[#gone + 1] = field
  end
  -- unpack fails above some thousands of values.
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
local ttl = text(math.floor((latest_end - now) / 1000) + 60000 + margin)
for key, new in pairs(touched) do
  if new then
    call('PEXPIRE', KEYS[key], ttl)
  end
end
return reply
