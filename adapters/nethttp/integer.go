package nethttp

import (
	"strconv"
	"time"
)

// appendMember appends a member to a list. It appends nothing for "".
func appendMember(list []byte, member string) []byte {
	if len(list) > 0 && member != "" {
		list = append(list, ", "...)
	}
	return append(list, member...)
}

// maxInteger is the largest Integer of a structured field (RFC 9651, section 3.3.1).
const maxInteger = 999_999_999_999_999

func integer(n int64) string { return string(appendInteger(nil, n)) }

func appendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(max(n, 0), maxInteger), 10)
}

func seconds(d time.Duration) string { return integer(ceilSeconds(d)) }

// ceilSeconds returns d in seconds, rounded up.
func ceilSeconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
