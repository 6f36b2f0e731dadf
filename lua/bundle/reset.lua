-- Forgets one bucket of a bundle and its holds. A key that holds no bundle, or a corrupted one, is
-- deleted: no bucket of it can be read.
--
-- KEYS   the bundle, as in lua/bundle/bundle.lua; the holds
-- ARGV   the label of the bucket
-- Reply  1

local bundle, sound, spot, length = redis.pcall('GET', KEYS[1]), true, nil, nil
if type(bundle) == 'string' then
  sound, spot, length = pcall(find, bundle, ARGV[1])
elseif bundle then
  sound = false -- it is of another type
end
if not sound then
  redis.call('DEL', KEYS[1])
elseif spot then
  save(KEYS, 1, table.concat({string.sub(bundle, 1, spot - 1), string.sub(bundle, spot + length)}), now, margin, true)
end
redis.call('DEL', KEYS[2])
return 1
