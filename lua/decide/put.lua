-- Writes KEYS[key]: its text value, or value from the start on and tail from place on. SETRANGE costs less
-- than SET.
--
-- ttl  a number  its time to live in microseconds
--      0         nothing is left
--      'keep'    its time to live stays, and its length may change
--      nil       its time to live and its length stay
if tail then
  redis.call('SETRANGE', KEYS[key], '0', value)
  redis.call('SETRANGE', KEYS[key], place, tail)
  value = nil
end
if ttl == 0 then
  redis.call('DEL', KEYS[key])
elseif ttl and ttl ~= 'keep' then
  ttl = (ttl - ttl % 1000) / 1000 + 1 + margin
  if ttl ~= printed then
    printed, expiry = ttl, format(ttl < 2147483648 and '%d' or '%.0f', ttl)
  end
  if value then
    redis.call('SET', KEYS[key], value, 'PX', expiry)
  else
    redis.call('PEXPIRE', KEYS[key], expiry)
  end
elseif value and (ttl or redis.pcall('SETRANGE', KEYS[key], '0', value) ~= #value) then
  redis.call('SET', KEYS[key], value, 'KEEPTTL') -- or the user may not use SETRANGE
end
