-- Forgets one bucket of a bundle and its holds. It fails if the key holds no bundle.
--
-- KEYS   the bundle, as in lua/bundle/bundle.lua; the holds
-- ARGV   the label of the bucket
-- Reply  1

local bundle = redis.call('GET', KEYS[1])
local spot, length = nil, nil
if bundle then
  spot, length = find(bundle, ARGV[1])
end
if spot then
  save(KEYS, 1, table.concat({string.sub(bundle, 1, spot - 1), string.sub(bundle, spot + length)}), now, margin)
end
redis.call('DEL', KEYS[2])
return 1
