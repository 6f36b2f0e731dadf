package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// describe returns a limit in a few words.
func describe(a core.Algorithm) string {
	switch l := a.(type) {
	case core.Unlimited:
		return "unlimited"
	case core.DenyAll:
		return "deny"
	case core.TokenBucket:
		if l.Rate == 0 {
			return fmt.Sprintf("%s in all", count(l.Burst))
		}
		return fmt.Sprintf("%s per %s, burst %s", count(l.Rate), period(l.Per), count(l.Burst))
	case core.LeakyBucket:
		return fmt.Sprintf("leaks %s per %s, holds %s", count(l.Rate), period(l.Per), count(l.Capacity))
	case core.FixedWindow:
		return fmt.Sprintf("%s in each %s", count(l.Limit), period(l.Window))
	case core.SlidingWindow:
		return fmt.Sprintf("%s in any %s", count(l.Limit), period(l.Window))
	case core.SlidingLog:
		var all []string
		for _, w := range l.Windows {
			all = append(all, fmt.Sprintf("%s in any %s", count(w.Limit), period(w.Width)))
		}
		return strings.Join(all, ", ")
	case core.Calendar:
		return fmt.Sprintf("%s in each %v in %v", count(l.Limit), l.Every, l.In)
	case core.Block:
		return fmt.Sprintf("blocks after %d in %s", l.Strikes, period(l.Within))
	}
	return fmt.Sprintf("%T", a)
}

// period returns a length of time without units that are 0.
func period(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = text[:len(text)-2]
	}
	if strings.HasSuffix(text, "h0m") {
		text = text[:len(text)-2]
	}
	return text
}
