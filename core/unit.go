package core

// Unit says what a policy counts. Decisions do not depend on it: the caller charges costs in this
// unit. Responses state it, so that a client can tell a limit on tokens from one on requests:
// package nethttp sends it as the quota unit qu in RateLimit-Policy, and the headers of model APIs
// have one set of names for requests and others for tokens.
type Unit uint8

const (
	// UnitRequests counts requests. RateLimit-Policy states no quota unit then.
	UnitRequests Unit = iota
	// UnitTokens counts tokens of a language model, input and output together.
	UnitTokens
	// UnitInputTokens counts the tokens that a model reads.
	UnitInputTokens
	// UnitOutputTokens counts the tokens that a model writes.
	UnitOutputTokens
	// UnitMicroDollars counts money in millionths of a dollar. The headers of model APIs have no
	// names for it.
	UnitMicroDollars
)

var units = [...]string{"requests", "tokens", "input-tokens", "output-tokens", "micro-dollars"}

// String returns the unit in lower case, as RateLimit-Policy states it.
func (u Unit) String() string { return nameOf(units[:], int(u)) }
