-- leave lets a lone holder go and returns 1, or 0 if another holds. id has a space before and
-- behind it. Whether the lease has ended makes no difference to what is left. The numbers stand here
-- because a captured variable costs as much as a command.
local function leave(key, value, id)
  if not value or value.err or not string.find(value, id, 17, true) then
    return 0
  end
  local last = string.sub(value, 1, 16) .. ' 0 0 - 0 1 - - - 1 1'
  if redis.pcall('SET', key, last, 'KEEPTTL').err then -- no memory, except behind a DEL
    redis.call('DEL', key)
    redis.pcall('SET', key, last, 'PX', 301000)
  end
  return 1
end
