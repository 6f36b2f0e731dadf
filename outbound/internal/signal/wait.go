package signal

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// now returns the time by the server's clock, because a moment that the server states is one of that:
// ours, if it is in the second that the Date of the response names.
func (r *response) now() time.Time {
	date, err := http.ParseTime(r.header.Get("Date"))
	if since := r.received.Sub(date); err == nil && (since < 0 || since > time.Second) {
		return date
	}
	return r.received
}

// until returns the time until a moment, in seconds since 1970: by the server's clock, or by ours if
// that is far from the moment and ours is not.
func (r *response) until(moment float64) time.Duration {
	left := func(now time.Time) float64 { return moment - float64(now.UnixMicro())/1e6 }
	theirs, ours := left(r.now()), left(r.received)
	if math.Abs(theirs) > MaxWait.Seconds() && math.Abs(ours) < MaxWait.Seconds() {
		return bounded(ours)
	}
	return bounded(theirs)
}

// moment returns the time until the moment that a value states: as a moment in any usual form, as a
// duration such as 6m0s, or as seconds from now. It is 0 if the value says nothing, or a moment that
// is past.
func (r *response) moment(value string) time.Duration {
	if n, ok := number(value); ok {
		return r.fromNumber(n)
	}
	if d, ok := duration(value); ok {
		return d
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, value); err == nil {
			return r.until(float64(t.UnixMicro()) / 1e6)
		}
	}
	return 0
}

// layouts are the forms of a moment. Those of HTTP have no day of the week, because parts ends at the
// comma behind it.
var layouts = []string{
	time.RFC3339, "2 Jan 2006 15:04:05 MST", "2 Jan 2006 15:04:05 -0700", "2-Jan-06 15:04:05 MST", time.ANSIC,
}

// number reads a decimal number. One that has too many digits is infinite.
func number(value string) (float64, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	return n, (err == nil) != math.IsInf(n, 0)
}

const (
	// epoch is the least number that is a moment since 1970 and no wait: 31 years in seconds.
	epoch = 1e9
	// farthest is a number that is no moment in any unit.
	farthest = 1e18
)

// fromNumber reads seconds, or a moment since 1970 in seconds, milliseconds or microseconds.
func (r *response) fromNumber(n float64) time.Duration {
	if n < epoch || n > farthest {
		return bounded(n)
	}
	for n >= epoch*1000 {
		n /= 1000
	}
	return r.until(n)
}

// bounded returns seconds as a wait between 0 and MaxWait, rounded up to a microsecond.
func bounded(seconds float64) time.Duration {
	if !(seconds > 0) { // also if it is no number
		return 0
	}
	us := math.Ceil(min(seconds, MaxWait.Seconds())*1e6 - 1e-3)
	return time.Duration(max(us, 1)) * time.Microsecond
}

// duration parses a duration such as 1d2h, 6m0s or 2m59.56s.
func duration(value string) (time.Duration, bool) {
	value = strings.ToLower(value)
	days, rest, ok := strings.Cut(value, "d")
	if !ok {
		days, rest = "0", value
	}
	n, valid := number(days)
	d, err := time.ParseDuration(cmp.Or(rest, "0s"))
	return bounded(n*24*3600 + d.Seconds()), valid && err == nil && value != ""
}

// longest returns the longest wait that the parts of lists state, as numbers of the unit or with their
// own. Proxies join values to lists.
func (r *response) longest(values []string, unit string) (most time.Duration) {
	for _, part := range parts(values) {
		most = max(most, r.moment(strings.TrimSpace(part)+unit))
	}
	return most
}

// wait returns how long to wait, or 0. The first source that states a wait counts.
func (r *response) wait(h http.Header) time.Duration {
	for _, source := range waitHeaders {
		if d := r.longest(h[source.name], source.unit); d > 0 {
			return d
		}
	}
	if d := r.longest(r.told, ""); d > 0 {
		return d
	}
	stated := time.Duration(0)
	for _, w := range r.windows {
		if w.Remaining == 0 {
			stated = max(stated, w.Reset)
		}
	}
	switch {
	case stated > 0:
		return stated
	case r.status == http.StatusTooManyRequests, r.status == http.StatusServiceUnavailable:
		stated = min(inMessage(r.message), maxTextWait)
	}
	if stated == 0 && strings.HasPrefix(r.message, secondaryLimit) {
		return secondary
	}
	return stated
}

const maxTextWait = 15 * time.Minute // that a message may ask for

// inMessage returns the wait that a message in lower case states, such as "please try again in
// 7m12s." or "retry after 9 seconds".
func inMessage(message string) time.Duration {
	for _, in := range invitations {
		_, rest, ok := strings.Cut(message, in)
		if !ok {
			continue
		}
		stated, rest, _ := strings.Cut(rest, " ")
		if d, ok := duration(strings.TrimRight(stated, ".,\n")); ok {
			return d
		}
		if n, ok := number(stated); ok && strings.HasPrefix(rest, "second") {
			return bounded(n)
		}
	}
	return 0
}
