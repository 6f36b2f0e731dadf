-- Charges a request and keeps a text beside what it charges, both or neither; or reads the text.
--
-- KEYS   the key of the one charge; the key of the text. To read: the key of the text alone.
-- ARGV   as in lua/decide/decide.lua, for one request; for how many milliseconds the text is kept; the
--        text. To read: nothing.
-- Reply  as in lua/decide/decide.lua. To read: the text, or nothing.
--
-- A charge that does not fit leaves the text of an earlier one.
local last = #ARGV
if last == 0 then
  return {redis.call('GET', KEYS[1])}
end
local function confirm()
  redis.call('SET', KEYS[2], ARGV[last], 'PX', ARGV[last - 1])
  return true
end
return decide({KEYS[1]}, {unpack(ARGV, 1, last - 2)}, now, margin, confirm)
