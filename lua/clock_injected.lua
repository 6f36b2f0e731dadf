-- The clock of a test: the last ARGV, in integer microseconds. Keys live a day longer than on the
-- real clock, because the server's time does not follow the injected one.
local now = tonumber(table.remove(ARGV))
local margin = 86400000
