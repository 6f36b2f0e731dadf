-- Takes slots where nobody else holds or waits. It needs one key where lua/lease/batch.lua takes five.
--
-- KEYS   for each acquire the records of its scope, as in lua/lease/lone.lua
-- ARGV   for each the milliseconds for which Redis keeps the lease, and " 0 lease id request"
-- Reply  for each the text of the fencing token, 0 if lua/lease/batch.lua is to decide. For one key
--        this is no list, which costs as much as a command.
local time = redis.call('TIME')
local token = string.format('%s%06d', time[1], time[2])
if #KEYS == 1 then
  return take(KEYS[1], redis.pcall('GET', KEYS[1]), token, ARGV[1], ARGV[2])
end
local tokens = {}
for i = 1, #KEYS do
  tokens[i] = take(KEYS[i], redis.pcall('GET', KEYS[i]), token, ARGV[2 * i - 1], ARGV[2 * i])
end
return tokens
