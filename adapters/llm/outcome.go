package llm

// Outcome says how the usage of a request was found.
type Outcome uint8

const (
	// OutcomeReported: the response told its usage, which was charged to the token.
	OutcomeReported Outcome = iota
	// OutcomeFailed: the server failed before it sent anything of an answer. Nothing was charged.
	OutcomeFailed
	// OutcomeCut: the response broke off, since the client left, the server failed, or a budget ended the
	// stream. Its input and the output that was seen were charged.
	OutcomeCut
	// OutcomeUnreported: the response was whole and did not tell its usage, or could not be read. The
	// estimate was charged, or the input and the output that was seen if they are more.
	OutcomeUnreported
)

// String returns the outcome in one lower-case word.
func (o Outcome) String() string {
	return nameOf([]string{"reported", "failed", "cut", "unreported"}, int(o))
}
