-- Asks whether Blocks have no state, for requests that ask them besides what they charge. Without a state
-- they admit everything.
--
-- KEYS   behind the others: the keys of the Blocks
-- ARGV   behind the others, if any are asked: their number, 'asks'
-- Reply  -1 alone if a Block has a state. The script then does nothing, and the requests are sent again with
--        the Blocks among their charges, which only lua/decide/decide.lua decides.
--
-- It cuts them off, so that what follows gets the others.
if ARGV[#ARGV] == 'asks' then
  table.remove(ARGV)
  for key = #KEYS, #KEYS - table.remove(ARGV) + 1, -1 do
    if redis.call('GET', KEYS[key]) then
      return {-1}
    end
    KEYS[key] = nil
  end
end
