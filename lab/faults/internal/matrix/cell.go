package matrix

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lab/faults/internal/lab"
)

// outcome is what one fault did on one topology, by mode where it has three.
type outcome struct {
	fault    fault
	topology lab.Topology

	decisions [len(modes)]int
	longest   [len(modes)]time.Duration
	causes    [len(modes)]error // why shares decided
	doubles   [len(modes)]int   // keys that count more than the one decision on them
	missing   [len(modes)]int   // keys that do not count a decision that Redis admitted
	over      [len(modes)]int64
	recovery  [len(modes)]time.Duration
	slots     int           // lost
	holds     int           // lost
	stall     time.Duration // the longest that this program had no CPU
	faults    []error
}

// run breaks a Redis of its own, and measures.
func (f fault) run(ctx context.Context, topology lab.Topology, lasts time.Duration) (o outcome) {
	o = outcome{fault: f, topology: topology}
	fail := func(what string, err error) outcome {
		o.faults = append(o.faults, fmt.Errorf("%s: %w", what, err))
		return o
	}
	config := f.config
	config.Topology = topology
	l, err := lab.Start(config)
	if err != nil {
		return fail("start", err)
	}
	defer l.Close()
	s := &scene{Lab: l, sound: f.sound, lasts: lasts}
	for id := range processes {
		p, err := newProcess(id, l, f.sound)
		if err != nil {
			return fail("make a process", err)
		}
		defer p.close()
		s.processes = append(s.processes, p)
		if err := p.prepare(ctx, l); err != nil {
			return fail("prepare", err)
		}
	}
	if !f.fresh {
		if err := s.processes[0].exhaust(ctx, l); err != nil {
			return fail("prepare", err)
		}
		s.count()
	}

	busy, end := context.WithCancel(ctx)
	defer end()
	var wg sync.WaitGroup
	var stall atomic.Int64
	wg.Go(func() { heartbeat(busy, &stall) })
	for _, p := range s.processes {
		p.decide(busy, l, &wg)
		p.lock(busy, l, &s.shared, &wg)
	}
	time.Sleep(300 * time.Millisecond)
	healed := time.Now()
	if err := f.do(s); err != nil {
		end()
		wg.Wait()
		return fail("break", err)
	}
	if !f.unhealed {
		healed = time.Now()
	}
	o.recover(s, healed)
	o.fence(s, healed)
	end()
	wg.Wait()
	o.stall = time.Duration(stall.Load())
	for i := range modes {
		for _, p := range s.processes {
			o.over[i] += p.tally[i].admitted.Load()
		}
		o.over[i] = max(0, o.over[i]-limit)
	}
	o.finish(ctx, s)
	o.count(ctx, s)
	o.judge()
	return o
}

// heartbeat measures for how long this program has no CPU.
func heartbeat(ctx context.Context, longest *atomic.Int64) {
	const beat = time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		time.Sleep(beat)
		longest.Store(max(longest.Load(), int64(time.Since(began)-beat)))
	}
}

// recover waits until Redis decides everything, and measures how long that took.
func (o *outcome) recover(s *scene, healed time.Time) {
	// No decision that is on its way takes longer than quiet.
	const quiet, patience = longestDecision + 100*time.Millisecond, 15 * time.Second
	for began := time.Now(); ; {
		latest := healed
		for i := range modes {
			for _, p := range s.processes {
				if at := p.tally[i].last(); at.After(latest) {
					latest = at
				}
				o.recovery[i] = max(o.recovery[i], p.tally[i].last().Sub(healed))
			}
		}
		if time.Since(latest) > quiet && time.Since(began) > quiet {
			return
		}
		if time.Since(healed) > patience {
			o.faults = append(o.faults, errors.New("not everything is decided by Redis again"))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// fence judges the tokens of the locks: no fault may let one fall, or end locking. A lock whose release
// had no answer is free within the life of its lease.
func (o *outcome) fence(s *scene, healed time.Time) {
	fences := []*fence{&s.shared}
	for _, p := range s.processes {
		fences = append(fences, &p.own)
	}
	for _, f := range fences {
		for deadline := time.Now().Add(life); !f.grantedAfter(healed); time.Sleep(pace) {
			if time.Now().After(deadline) {
				o.faults = append(o.faults, errors.New("a lock is not granted after the fault"))
				break
			}
		}
		o.faults = append(o.faults, f.err())
	}
}

// count adds up what was decided, and compares it with what Redis has counted.
func (o *outcome) count(ctx context.Context, s *scene) {
	for i := range modes {
		for _, p := range s.processes {
			t := &p.tally[i]
			o.decisions[i] += t.decisions
			o.causes[i] = cmp.Or(o.causes[i], t.cause)
			o.longest[i] = max(o.longest[i], t.longest)
			o.faults = append(o.faults, t.wrong)
			if !o.fault.promise.refuses {
				o.faults = append(o.faults, t.refused)
			}
			for n, admitted := range t.asked {
				used, err := p.used(ctx, core.Charge{Policy: p.many[i], Key: p.single(s.Lab, i, n), Cost: 1})
				if err != nil {
					o.faults = append(o.faults, fmt.Errorf("read a count: %w", err))
					return
				}
				switch {
				case used > 1:
					o.doubles[i]++
				case used == 0 && admitted:
					o.missing[i]++
				}
			}
		}
	}
}

// finish ends the slots and the holds, and counts those that were lost.
func (o *outcome) finish(ctx context.Context, s *scene) {
	if o.fault.promise.loses {
		time.Sleep(life / 2) // each has been renewed, and its loss told
	}
	for _, p := range s.processes {
		for _, lease := range p.held {
			select {
			case <-lease.Lost():
				o.slots++
			default:
				_ = lease.Release(ctx) // is sent again; the list below tells
			}
		}
		for _, hold := range p.holds {
			_ = hold.Settle(ctx, 1) // is sent again, and counts once
		}
		o.holds += min(int(p.expired.Load()), len(p.holds)) // a renewal and Settle may both tell
	}
	p := s.processes[processes-1]
	for i := range modes {
		deadline := time.Now().Add(2 * time.Second)
		for {
			holders, _, err := p.caps[i].Holders(ctx, key(s.Lab, i))
			if err == nil && len(holders) == 0 {
				break
			}
			if time.Now().After(deadline) {
				o.faults = append(o.faults, errors.Join(fmt.Errorf("%d slots of %v are stranded", len(holders), modes[i]), err))
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}
