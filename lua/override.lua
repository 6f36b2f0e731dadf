-- Changes the override of a tenant's plan, and tells every process which tenant has changed.
--
-- KEYS   override  string: the override as JSON
--        changes   list: the latest changes, newest first
-- ARGV   operation; the change; the most changes to keep; their TTL in milliseconds; for set: the
--        override, and its end in milliseconds since 1970, or 0
--        set     stores the override
--        delete  deletes it
--        touch   leaves it: something else about the tenant has changed
-- Reply  1 if there was an override before a delete, otherwise 0
--
-- An override without an end has no TTL, because it is configuration that somebody has set. The
-- changes have one: a process that does not find the last change that it knows reads all again.

local was = 0
if ARGV[1] == 'set' then
  if ARGV[6] == '0' then
    redis.call('SET', KEYS[1], ARGV[5])
  else
    redis.call('SET', KEYS[1], ARGV[5], 'PXAT', ARGV[6])
  end
elseif ARGV[1] == 'delete' then
  was = redis.call('DEL', KEYS[1])
end
redis.call('LPUSH', KEYS[2], ARGV[2])
redis.call('LTRIM', KEYS[2], 0, ARGV[3] - 1)
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return was
