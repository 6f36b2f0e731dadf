-- publish sends a message. A channel with a brace lies in the scope's hash slot: its message is
-- sharded, unless the server does not know SPUBLISH, as some that know SSUBSCRIBE. An ACL may forbid
-- the channel. The waiter then finds its grant when it next acquires.
local function publish(channel, message)
  local sent = string.find(channel, '{', 1, true) and redis.pcall('SPUBLISH', channel, message)
  if not sent or type(sent) == 'table' and string.find(sent.err, 'nknown', 1, true) then
    redis.pcall('PUBLISH', channel, message)
  end
end
