package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

// call is the requests of one caller on their way.
type call struct {
	requests []request.Request
	merges   bool // the one request merges with equal ones
	words    int  // of the reply
	weight   int  // words, and what the script does without telling
	deadline time.Time
	shared   *deadline.Shared // or nil

	reply []int64 // until the caller has it
	err   error
	state callState     // the queue's lock guards it
	turn  chan struct{} // is sent to when the call leads, or is answered
}

type callState uint8

const (
	callWaits   callState = iota
	callLeads             // picked, or in flight as the leader
	callEncodes           // the leader reads its requests
	callSent
	callAnswered
	callLeft
)

var calls = sync.Pool{New: func() any { return &call{turn: make(chan struct{}, 1)} }}

func acquireCall(ctx context.Context, requests []request.Request) *call {
	k := calls.Get().(*call)
	k.requests, k.words, k.weight = requests, 0, 0
	k.merges = len(requests) == 1 && mergeable(&requests[0])
	for i := range requests {
		r := &requests[i]
		k.words += r.Words()
		k.weight += r.Words()
		if r.Op == algorithm.Give {
			k.weight += len(r.Charges)
		}
	}
	var ok bool
	if k.deadline, ok = ctx.Deadline(); !ok {
		k.deadline = time.Now().Add(time.Hour) // later than any
	}
	k.shared = deadline.SharedOf(ctx)
	return k
}

// release lets the call be used again, unless its caller has left: a leader may still hold it then.
func (k *call) release() {
	if k.state != callLeft {
		k.requests, k.shared, k.reply, k.err, k.state = nil, nil, nil, nil, callWaits
		calls.Put(k)
	}
}

// brief reports whether the script may answer in one number.
func (k *call) brief() bool { return k.merges && len(k.requests[0].Charges) == 1 }
