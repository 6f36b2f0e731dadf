-- The clock of a decision: Redis's own, in integer microseconds, read once. Every key outlives its
-- state by margin milliseconds, so that a replica whose clock is ahead keeps what still counts.
-- A test replaces the call and the margin; see internal/redistest.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local margin = 1000
