-- Replays script calls under Lua 5.4 on a Redis in memory, which knows the commands of the scripts.
--
-- Input   number of scripts, scripts; then, to the end, calls: index of the script, number of KEYS,
--         KEYS, number of ARGV, ARGV. A text is its length and itself. All end with a newline.
-- Output  for each call a line: the reply as a Lua table, then the faults found in it.
--
-- Integers and floats are different types here, unlike in Lua 5.1: a float prints with a fraction
-- and shows in a reply, in a value or in an argument of a command.

local db = {}
local faults

local function fault(format, ...)
  faults[#faults + 1] = string.format(format, ...)
end

local function looks_like_float(word)
  return word:find('^-?%d+%.%d*$') or word:find('^-?%d[%d.]*[eE][+-]?%d+$') or word:find('^-?nan$')
end

-- to_text returns an argument of a command as Redis gets it.
local function to_text(command, i, arg)
  if math.type(arg) == 'integer' then
    -- Redis 7.2 prints a number with an exponent where that is shorter. Only a score may be one.
    if math.abs(arg) >= 100000000 and not (command == 'ZADD' and i == 2) then
      fault('%s gets the number %d as argument %d', command, arg, i)
    end
    return string.format('%d', arg)
  elseif type(arg) ~= 'string' then
    fault('%s gets %s as argument %d', command, arg, i)
    return tostring(arg)
  end
  if arg:find('[^\32-\126]') then -- the bits of a filter
    return arg
  end
  for word in arg:gmatch('[^%s,]+') do
    if looks_like_float(word) then
      fault('%s gets %q as argument %d', command, arg, i)
      break
    end
  end
  return arg
end

-- entry returns what a key holds. It creates a missing key if create is set.
local function entry(key, kind, create)
  if not db[key] and create then
    db[key] = {kind = kind}
  end
  local e = db[key]
  if e and e.kind ~= kind then
    error({err = 'WRONGTYPE Operation against a key holding the wrong kind of value'})
  end
  return e or {kind = kind}
end

local function get(key)
  return entry(key, 'string').text or false
end

local function put(key, text)
  db[key] = {kind = 'string', text = text}
end

-- members returns the members of a sorted set in order. Scores are in entry.scores.
local function members(key)
  local scores, all = entry(key, 'zset').scores or {}, {}
  for member in pairs(scores) do
    all[#all + 1] = member
  end
  table.sort(all, function(a, b)
    if scores[a] ~= scores[b] then
      return scores[a] < scores[b]
    end
    return a < b
  end)
  return all, scores
end

local function range(list, from, to)
  from, to = from < 0 and #list + from or from, to < 0 and #list + to or to
  return table.move(list, from + 1, math.min(to + 1, #list), 1, {})
end

local function limit(list, word, offset, count)
  return word == 'LIMIT' and range(list, offset + 0, offset + count - 1) or list
end

local function by_text(key, from, to)
  local all = {}
  for _, member in ipairs((members(key))) do
    local low, high = from:sub(2), to:sub(2)
    if (member > low or member == low and from:sub(1, 1) == '[')
      and (member < high or member == high and to:sub(1, 1) == '[') then
      all[#all + 1] = member
    end
  end
  return all
end

local commands = {}

function commands.GET(key) return get(key) end

function commands.MGET(...)
  local values = {}
  for i, key in ipairs({...}) do
    values[i] = db[key] and db[key].text or false
  end
  return values
end

function commands.SET(key, value, condition)
  if condition == 'NX' and db[key] then
    return false
  end
  put(key, value)
  return {ok = 'OK'}
end

function commands.INCRBY(key, by)
  local text = get(key) or '0'
  if not text:find('^-?%d+$') or not by:find('^-?%d+$') or text:find('^-?0%d') then
    error({err = 'ERR value is not an integer or out of range'})
  end
  local n = text + by
  put(key, string.format('%d', n))
  return n
end

function commands.DEL(...)
  local n = 0
  for _, key in ipairs({...}) do
    n, db[key] = n + (db[key] and 1 or 0), nil
  end
  return n
end

function commands.GETRANGE(key, from, to)
  return (get(key) or ''):sub(from + 1, to + 1)
end

function commands.SETRANGE(key, from, text)
  local old, at = get(key) or '', from + 0
  old = old .. ('\0'):rep(at - #old)
  put(key, old:sub(1, at) .. text .. old:sub(at + #text + 1))
  return #db[key].text
end

function commands.GETBIT(key, at)
  local byte = (get(key) or ''):byte(at // 8 + 1) or 0
  return byte >> (7 - at % 8) & 1
end

function commands.SETBIT(key, at, bit)
  assert(bit == '1')
  local old, n = commands.GETBIT(key, at), at // 8
  local byte = commands.GETRANGE(key, n, n):byte() or 0
  commands.SETRANGE(key, n, string.char(byte | 1 << (7 - at % 8)))
  return old
end

function commands.BITCOUNT(key)
  local n = 0
  for at = 0, 8 * #(get(key) or '') - 1 do
    n = n + commands.GETBIT(key, at)
  end
  return n
end

function commands.PEXPIRE(key, ttl)
  if not ttl:find('^%d+$') then
    error({err = 'ERR value is not an integer or out of range'})
  end
  return db[key] and 1 or 0
end

-- PTTL is that of a key that was just set, because nothing here expires.
function commands.PTTL(key) return db[key] and 1000 or -2 end

function commands.HGET(key, field)
  return (entry(key, 'hash').fields or {})[field] or false
end

function commands.HMGET(key, ...)
  local values = {}
  for i, field in ipairs({...}) do
    values[i] = commands.HGET(key, field)
  end
  return values
end

function commands.HSET(key, ...)
  local e, args, n = entry(key, 'hash', true), {...}, 0
  e.fields = e.fields or {}
  for i = 1, #args, 2 do
    n = n + (e.fields[args[i]] and 0 or 1)
    e.fields[args[i]] = args[i + 1]
  end
  return n
end

function commands.HGETALL(key)
  local all = {}
  for field, value in pairs(entry(key, 'hash').fields or {}) do
    all[#all + 1], all[#all + 2] = field, value
  end
  return all
end

-- remove deletes names from a table of an entry, and the key with the last one.
local function remove(key, kind, part, ...)
  local list, n = entry(key, kind)[part] or {}, 0
  for _, name in ipairs({...}) do
    n, list[name] = n + (list[name] and 1 or 0), nil
  end
  if not next(list) then
    db[key] = nil
  end
  return n
end

function commands.HDEL(key, ...) return remove(key, 'hash', 'fields', ...) end

function commands.ZADD(key, ...)
  local e, words, new = entry(key, 'zset', true), {...}, 0
  e.scores = e.scores or {}
  if words[1] == 'INCR' then
    local member = words[3]
    e.scores[member] = (e.scores[member] or 0) + math.tointeger(tonumber(words[2]))
    return string.format('%d', e.scores[member])
  end
  for i = 1, #words, 2 do
    local score, member = words[i], words[i + 1]
    new = new + (e.scores[member] and 0 or 1)
    e.scores[member] = math.tointeger(tonumber(score)) or error({err = 'ERR value is not a float'})
  end
  return new
end

function commands.ZREM(key, ...) return remove(key, 'zset', 'scores', ...) end

function commands.ZSCORE(key, member)
  local score = (entry(key, 'zset').scores or {})[member]
  return score and string.format('%d', score) or false
end

function commands.ZCARD(key) return #members(key) end

function commands.ZRANGE(key, from, to, with)
  local all, scores = members(key)
  local part = range(all, from + 0, to + 0)
  if with ~= 'WITHSCORES' then
    return part
  end
  local both = {}
  for _, member in ipairs(part) do
    both[#both + 1] = member
    both[#both + 1] = string.format('%d', scores[member])
  end
  return both
end

function commands.ZRANGEBYSCORE(key, from, to, option, ...)
  from = from == '-inf' and math.mininteger or from + 0
  local all, scores = members(key)
  local part = {}
  for _, member in ipairs(all) do
    if scores[member] >= from and scores[member] <= to + 0 then
      part[#part + 1] = member
    end
  end
  if option ~= 'WITHSCORES' then
    return limit(part, option, ...)
  end
  local both = {}
  for _, member in ipairs(limit(part, ...)) do
    both[#both + 1] = member
    both[#both + 1] = string.format('%.0f', scores[member])
  end
  return both
end

function commands.ZRANGEBYLEX(key, from, to, ...) return limit(by_text(key, from, to), ...) end

function commands.ZLEXCOUNT(key, from, to) return #by_text(key, from, to) end

function commands.PUBLISH() return 0 end

local redis = {}

function redis.call(name, ...)
  local command, args = commands[name], {...}
  if not command then
    fault('unknown command %s', name)
    error({err = 'ERR unknown command'})
  end
  for i = 1, #args do
    args[i] = to_text(name, i, args[i])
  end
  return command(table.unpack(args))
end

function redis.pcall(...)
  local ok, reply = pcall(redis.call, ...)
  if ok or type(reply) == 'table' then
    return reply
  end
  return {err = reply}
end

-- show prints a reply. A float shows by its fraction.
local function show(value)
  if type(value) == 'table' and not value.err then
    local parts = {}
    for i, v in ipairs(value) do
      parts[i] = show(v)
    end
    return '{' .. table.concat(parts, ' ') .. '}'
  elseif math.type(value) == 'integer' then
    return string.format('%d', value)
  elseif type(value) == 'string' then
    return '"' .. value .. '"'
  elseif type(value) == 'number' then
    fault('the reply holds the float %s', value)
    return tostring(value)
  end
  return type(value) == 'table' and 'error: ' .. tostring(value.err) or tostring(value)
end

local function number()
  local n = io.read('n', 1)
  return n
end

local function texts()
  local all, n = {}, number()
  for i = 1, n do
    local size = number()
    all[i] = io.read(size)
    io.read(1)
  end
  return all
end

local env = {
  redis = redis, unpack = table.unpack, string = string, table = table, math = math,
  tonumber = tonumber, tostring = tostring, type = type, pairs = pairs, ipairs = ipairs,
  next = next, select = select, error = error, pcall = pcall,
}
local scripts = {}
for i, source in ipairs(texts()) do
  scripts[i] = assert(load(source, '=script', 't', env))
end
local index = number()
while index do
  faults, env.KEYS, env.ARGV = {}, texts(), texts()
  local ok, reply = xpcall(scripts[index], function(err)
    return type(err) == 'table' and err or debug.traceback(err)
  end)
  local line = ok and show(reply) or 'error: ' .. (type(reply) == 'table' and reply.err or reply)
  for _, f in ipairs(faults) do
    line = line .. '; ' .. f
  end
  io.write((line:gsub('\n%s*', ' ')), '\n')
  index = number()
end
