-- publish sends a message, in a cluster to all nodes. An ACL may forbid the channel. The waiter then
-- finds its grant when it next acquires.
local function publish(channel, message)
  redis.pcall('PUBLISH', channel, message)
end
