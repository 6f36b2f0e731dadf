-- take grants a slot and returns the text of its token, or 0 if somebody holds or waits, or the last
-- token is not below the new one. value is what the key of the records holds, or the error of a GET if
-- that is a hash.
local function take(key, value, token, lives, text)
  if not value then
    return redis.call('SET', key, token .. text, 'NX', 'PX', lives) and token or 0
  elseif not value.err and string.find(value, ' 0 0 ', 17, true) == 17 and value < token then
    redis.call('SET', key, token .. text, 'PX', lives)
    return token
  end
  return 0
end
