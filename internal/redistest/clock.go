package redistest

import (
	"strings"

	"github.com/headgate/headgate"
)

// Script returns a script of package headgate on a clock that the caller passes as the last ARGV, in
// microseconds: tests replay histories on a real server with it. Keys live a day longer than on
// Redis's own clock, because that does not follow the caller's when it expires them.
func Script(name string) string {
	return clock.Replace(headgate.Script(name))
}

// clock replaces what lua/clock/clock.lua does, and how lua/lease/takes.lua reads the time.
var clock = strings.NewReplacer(
	"local time = redis.call('TIME')",
	"local time = table.remove(ARGV)\ntime = {math.floor(time / 1000000), time % 1000000}",
	"local margin = 1000\n", "local margin = 86400000\n",
)
