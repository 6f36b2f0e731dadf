package redisstore

import "github.com/headgate/headgate/internal/redisstore/trips"

// single is a call of an operation that shares its script with no other.
type single struct {
	trips.Call
	store *Store
	arguments
	texts bool // the reply holds texts too

	reply trips.Reply
}

var (
	_ trips.Parcel = (*single)(nil)
	_ trips.Batch  = (*single)(nil)
)

func (s *Store) newSingle(script *trips.Script, outermost string) *single {
	k := &single{store: s}
	k.begin(script)
	k.Call = trips.NewCall(k)
	k.Outermost, k.Lane, k.Weight = outermost, trips.Operations, leaseWeight
	return k
}

// Joins implements trips.Parcel.
func (k *single) Joins(trips.Parcel) bool { return false }

// Batch implements trips.Parcel. A single is its own batch.
func (k *single) Batch() trips.Batch { return k }

// Add implements trips.Batch.
func (k *single) Add(trips.Parcel) {}

// Command implements trips.Batch.
func (k *single) Command() trips.Command {
	c := k.command(k.store)
	c.Texts = k.texts
	return c
}

// Deliver implements trips.Batch.
func (k *single) Deliver(r trips.Reply) error {
	k.reply = r
	return nil
}

// Release implements trips.Batch.
func (k *single) Release() {}
