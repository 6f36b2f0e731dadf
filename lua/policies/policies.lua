-- States the policies of one process beside those of all others, so that tools can ask which
-- policies there are. A statement replaces an equal one.
--
-- KEYS   string: a line for each policy: when it was last stated, in microseconds since 1970, its
--        name, and what internal/stated writes of it, with blanks between them
-- ARGV   how long a statement is kept, in milliseconds; the most lines; then the lines of this
--        process, without their times
-- Reply  1

local before, lines, own = redis.pcall('GET', KEYS[1]), {}, {}
for i = 3, #ARGV do
  own[ARGV[i]] = true
  lines[#lines + 1] = string.format('%.0f ', now) .. ARGV[i]
end
if type(before) == 'string' then -- otherwise there is none, or it is of another type
  for line, at, said in string.gmatch(before, '((%d+) ([^\n]*))') do
    if not own[said] and now - at < ARGV[1] * 1000 and #lines < tonumber(ARGV[2]) then
      lines[#lines + 1] = line
    end
  end
end
redis.call('SET', KEYS[1], table.concat(lines, '\n'), 'PX', ARGV[1])
return 1
