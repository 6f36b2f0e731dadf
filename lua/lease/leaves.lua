-- Releases slots of lone holders. It needs one key where lua/lease/batch.lua takes five.
--
-- KEYS   for each release the records of its scope, as in lua/lease/lone.lua
-- ARGV   for each the id, with a space before and behind it
-- Reply  for each 1, 0 if lua/lease/batch.lua is to decide; for one key no list
if #KEYS == 1 then
  return leave(KEYS[1], redis.pcall('GET', KEYS[1]), ARGV[1])
end
local left = {}
for i = 1, #KEYS do
  left[i] = leave(KEYS[i], redis.pcall('GET', KEYS[i]), ARGV[i])
end
return left
