package lease

import (
	"fmt"
	"strconv"
	"strings"
)

// Message notifies a waiter that it was granted a lease. If all numbers are 0, nothing was granted,
// but there is room: the waiter should acquire again.
type Message struct {
	ID    string
	Token int64
	Left  int64 // time until the lease ended, at the grant, in microseconds
	Used  int64 // weight in use at the innermost level
}

// String returns the message as Redis publishes it.
func (m Message) String() string { return fmt.Sprint(m.ID, " ", m.Token, " ", m.Left, " ", m.Used) }

// ParseMessage parses a published text. It reports false for other texts, such as an eviction's.
func ParseMessage(text string) (Message, bool) {
	words := strings.Fields(text)
	if len(words) != 4 {
		return Message{}, false
	}
	m, ok := Message{ID: words[0]}, true
	for i, n := range []*int64{&m.Token, &m.Left, &m.Used} {
		var err error
		*n, err = strconv.ParseInt(words[1+i], 10, 64)
		ok = ok && err == nil
	}
	return m, ok
}
