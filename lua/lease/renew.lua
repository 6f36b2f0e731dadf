for i = 3, #ARGV do
  local id = ARGV[i]
  -- Other fields, which an id may name, have fewer words than a record.
  local number, granted, longest = string.match(get(id) or '', '^%S+ (%S+) (%S+) (%S+) ')
  if number and number ~= '0' then
    reply[i - 2] = math.max(1, extend(ends, id, granted, longest + 0, ARGV[2]) - now)
  else
    reply[i - 2] = not number and is_evicted(id) and -1 or 0
  end
end
if #ends > 2 then
  call(unpack(ends))
end
