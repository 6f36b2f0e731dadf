package keeper

import "context"

// channels are where a process hears what Redis tells it. Those on Redis are made by the function of
// Config.Listen, so that the linker drops them, and go-redis, from a program in memory. No type that
// a Keeper is made of may name one of go-redis for the same reason.
type channels interface {
	// channel is described at Channel. The lock is held, as in all but attend.
	channel(outermost string, w *Waiter) (name string, hears bool)
	// wait begins to listen for a waiter, and hold for evictions of leases.
	wait(w *Waiter, outermost string)
	hold()
	leave(w *Waiter)
	// attend is described at Attend.
	attend(ctx context.Context, w *Waiter, name string, heard bool)
}

// silent is a channel that nothing is told on, because the store calls Tell.
type silent struct{ name string }

func (c silent) channel(string, *Waiter) (name string, hears bool)   { return c.name, true }
func (silent) wait(*Waiter, string)                                  {}
func (silent) hold()                                                 {}
func (silent) leave(*Waiter)                                         {}
func (silent) attend(_ context.Context, _ *Waiter, _ string, _ bool) {}
