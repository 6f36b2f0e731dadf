for i = 3, #ARGV do
  local id = ARGV[i]
  local r = load_record(id)
  if r and r.token ~= '0' then
    reply[i - 2] = math.max(1, extend(id, r, ARGV[2]) - now)
  else
    reply[i - 2] = not r and is_evicted(id) and -1 or 0
  end
end
