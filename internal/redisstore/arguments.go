package redisstore

import "slices"

// arguments holds the arguments of a command. An interface that holds a pointer needs no memory of its own,
// so texts and integers lie in arrays. The first key of a command must be a string, because
// go-redis picks the server by it.
type arguments struct {
	ints  []int64
	names []string
	args  []any
}

// headSize is the most ARGV of a script that belong to no call: its form, and a clock of a test.
const headSize = 10

// clear drops the arguments and makes room for n others.
func (a *arguments) clear(n int) {
	clear(a.names)
	clear(a.args)
	a.ints = slices.Grow(a.ints[:0], n)
	a.names = slices.Grow(a.names[:0], n)
	a.args = slices.Grow(a.args[:0], n)
}

// next appends an integer that is set later.
func (a *arguments) next() *int64 {
	a.ints = append(a.ints, 0)
	p := &a.ints[len(a.ints)-1]
	a.args = append(a.args, p)
	return p
}

func (a *arguments) int(n int64) { *a.next() = n }

func (a *arguments) flag(set bool) {
	n := int64(0)
	if set {
		n = 1
	}
	a.int(n)
}

func (a *arguments) name(s string) {
	a.names = append(a.names, s)
	a.args = append(a.args, &a.names[len(a.names)-1])
}
