-- Reads several keys with one command.
--
-- Sets  values to their values, or nil
local values
if #KEYS > 1 then
  values = redis.pcall('MGET', unpack(KEYS))
  if values.err then -- the user may not use MGET; the keys are read one by one
    values = nil
  end
end
