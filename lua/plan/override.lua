-- Changes the override of a tenant's plan, and tells every process which tenant has changed.
--
-- KEYS   override  string: the override as JSON
--        changes   list: the latest changes, newest first
-- ARGV   operation; the change; the most changes to keep; their TTL in milliseconds; for set: the
--        override, and its end in milliseconds since 1970, or 0
--        set     stores the override, unless its end is over: then nothing changes
--        delete  deletes it
--        touch   leaves it: something else about the tenant has changed
-- Reply  1 after a set; 0 if its end is over. After a delete 1 if there was an override, otherwise 0.
--        After a touch 0
--
-- An override without an end has no TTL, because it is configuration that somebody has set. The
-- changes have one: a process that does not find the last change that it knows reads all again.

local done = 0
if ARGV[1] == 'set' then
  if ARGV[6] == '0' then
    redis.call('SET', KEYS[1], ARGV[5])
  else
    local now = redis.call('TIME')
    if tonumber(ARGV[6]) <= now[1] * 1000 + now[2] / 1000 then
      return 0
    end
    redis.call('SET', KEYS[1], ARGV[5], 'PXAT', ARGV[6])
  end
  done = 1
elseif ARGV[1] == 'delete' then
  done = redis.call('DEL', KEYS[1])
end
redis.call('LPUSH', KEYS[2], ARGV[2])
redis.call('LTRIM', KEYS[2], 0, ARGV[3] - 1)
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return done
