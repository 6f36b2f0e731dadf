package nethttp

// NoKey says what happens to a request from which a rule derives no key. Such requests never share
// a key.
//
// A request with an ambiguous key (keyfunc.ErrAmbiguous) does not lack one. It is always refused
// with 400, because the handler may read a value that the rule cannot.
type NoKey uint8

const (
	// NoKeyRefuse refuses the request with 400.
	NoKeyRefuse NoKey = iota
	// NoKeySkip skips the rule.
	NoKeySkip
)

func (n NoKey) check(field string, fault faultFunc) {
	if n > NoKeySkip {
		fault("%s is %d: it must be NoKeyRefuse or NoKeySkip", field, n)
	}
}

// String returns "refuse" or "skip".
func (n NoKey) String() string {
	switch n {
	case NoKeyRefuse:
		return "refuse"
	case NoKeySkip:
		return "skip"
	}
	return "unknown"
}
