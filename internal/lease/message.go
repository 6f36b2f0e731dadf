package lease

import (
	"fmt"
	"strconv"
	"strings"
)

// Message tells who waited that a lease was granted.
type Message struct {
	ID    string
	Token int64
	Left  int64 // until the lease ended when it was granted
	Used  int64 // at the innermost level
}

// String is the message as Redis publishes it.
func (m Message) String() string { return fmt.Sprint(m.ID, " ", m.Token, " ", m.Left, " ", m.Used) }

// ParseMessage reads a message, and says whether it is one.
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
