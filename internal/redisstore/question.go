package redisstore

import (
	"strconv"

	"github.com/headgate/headgate/internal/bloom"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// question is a call that asks a filter for items.
type question struct {
	trips.Call
	store  *Store
	filter string // without the prefix; its braces pick the hash slot
	shape  bloom.Shape
	items  []bloom.Item

	reply []int64
}

func (s *Store) newQuestion(filter string, shape bloom.Shape, items []bloom.Item) *question {
	k := s.questions.Get().(*question)
	k.filter, k.shape, k.items = filter, shape, items
	k.Outermost = filter
	// An item of a small block takes the server some 2 µs.
	k.Weight = len(items) * (1 + shape.Hashes/8 + int(shape.Bits/2048))
	return k
}

// release lets the question be used again.
func (k *question) release() {
	if k.Reset() {
		k.items, k.reply = nil, nil
		k.store.questions.Put(k)
	}
}

// Joins implements trips.Parcel.
func (k *question) Joins(p trips.Parcel) bool {
	o, ok := p.(*question)
	return ok && k.filter == o.filter && k.shape == o.shape
}

// checkFilterReply returns a reply of n integers.
func checkFilterReply(reply []int64, n int) ([]int64, error) {
	switch {
	case len(reply) == 6 && reply[0] == -1:
		return nil, request.OtherShape{Shape: bloom.Shape{
			Bits: reply[1], Blocks: reply[2], Parts: reply[3], Hashes: int(reply[4]), Window: reply[5],
		}}
	case len(reply) != n:
		return nil, trips.ErrReply
	}
	return reply, nil
}

// filterHead writes the head of a command as lua/filter/filter.lua reads it.
func (a *arguments) filterHead(
	prefix, filter, operation string, s bloom.Shape, parts []int64,
) {
	name := prefix + filter + ":bf2"
	a.int(int64(1 + 2*len(parts)))
	a.name(name)
	for _, p := range parts {
		number := strconv.FormatInt(p, 10)
		a.name(name + ":e" + number)
		a.name(name + ":o" + number)
	}
	a.name(operation)
	a.name(s.String())
	a.int(int64(len(parts)))
	for _, p := range parts {
		a.int(p)
	}
}
