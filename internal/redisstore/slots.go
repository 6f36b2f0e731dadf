package redisstore

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/request"
)

// Split implements request.Store: on a cluster one script decides only keys of one hash slot.
func (s *Store) Split(charges []*request.Charge) [][]*request.Charge {
	if !s.Cluster || oneSlot(charges, charges[0].Outermost()) {
		return nil
	}
	var parts [][]*request.Charge
	for _, c := range charges {
		i := slices.IndexFunc(parts, func(p []*request.Charge) bool {
			return p[0].Outermost() == c.Outermost()
		})
		if i < 0 {
			i = len(parts)
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], c)
	}
	return parts
}

// TakesSlot implements request.Store.
func (s *Store) TakesSlot(charges []*request.Charge, outermost string) bool {
	return !s.Cluster || oneSlot(charges, outermost)
}

func oneSlot(charges []*request.Charge, outermost string) bool {
	for _, c := range charges {
		if c.Outermost() != outermost {
			return false
		}
	}
	return true
}

// nodeQueue returns the queue for the node of a charge. Each node has its own, so that a node that
// stands still holds up no calls to others.
func (s *Store) nodeQueue(ctx context.Context, c *request.Charge) *queue {
	node := ""
	if client, ok := s.Client.(*redis.ClusterClient); ok {
		name := s.Prefix + c.Key + c.Suffix // now: the caller may use the charge for something else
		found := ""                         // a call that is left behind writes it at any time
		if s.bounded(ctx, func() error {
			master, err := client.MasterForKey(ctx, name)
			if err == nil {
				found = master.Options().Addr
			}
			return err
		}) == nil {
			node = found
		}
	}
	if q, ok := s.nodes.Load(node); ok {
		return q.(*queue)
	}
	q, _ := s.nodes.LoadOrStore(node, &queue{store: s})
	return q.(*queue)
}

// sendSlots sends a script for each slot, in one pipeline.
func (s *Store) sendSlots(ctx context.Context, q *queue, calls []*call) error {
	slots := make(map[string][]*call)
	for _, k := range calls {
		slot := k.requests[0].Charges[0].Outermost()
		slots[slot] = append(slots[slot], k)
	}
	parts := make([]*batch, 0, len(slots))
	for _, calls := range slots {
		parts = append(parts, s.encode(calls))
	}
	q.encoded(calls)
	var replies []*redis.IntSliceCmd
	err := s.bounded(ctx, func() error {
		cmds := s.pipeline(ctx, parts)
		var unknown []*batch
		var at []int
		for i, cmd := range cmds {
			if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") { // only these did not run
				parts[i].withSource()
				unknown, at = append(unknown, parts[i]), append(at, i)
			}
		}
		if len(unknown) > 0 {
			s.missing.Add(int64(len(unknown)))
			for i, cmd := range s.pipeline(ctx, unknown) {
				cmds[at[i]] = cmd
			}
		}
		replies = cmds
		return nil
	})
	if err != nil {
		return err // the client's pipeline may still use the batches
	}
	for i, b := range parts {
		reply, err := replies[i].Result()
		if err == nil {
			err = b.distribute(reply)
		}
		if err != nil {
			for _, k := range b.calls {
				k.err = split(err, b.calls)
			}
		}
		b.release()
	}
	return nil
}

// pipeline sends the script of each batch. The commands keep their errors.
func (s *Store) pipeline(ctx context.Context, parts []*batch) []*redis.IntSliceCmd {
	pipe := s.Client.Pipeline()
	cmds := make([]*redis.IntSliceCmd, len(parts))
	for i, b := range parts {
		cmds[i] = redis.NewIntSliceCmd(ctx, b.args...)
		cmds[i].SetFirstKeyPos(3)
		_ = pipe.Process(ctx, once{cmds[i]})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		for _, cmd := range cmds {
			if cmd.Err() == nil && cmd.Val() == nil { // a hook of the client let none through
				cmd.SetErr(err)
			}
		}
	}
	return cmds
}
