package keeper

import "context"

// channels are where a process hears what Redis tells it. Those on Redis are made by the function of
// Config.Listen, so that the linker drops them, and go-redis, from a program in memory. No type that
// a Keeper is made of may name one of go-redis for the same reason.
type channels interface {
	// channel returns the name of the one for an outermost key.
	channel(outermost string) string
	// wait begins to listen for a waiter, and hold for evictions of leases. The lock is held, as in leave.
	wait(w *Waiter, outermost string)
	hold()
	leave(w *Waiter)
	// attend is described at Attend.
	attend(ctx context.Context, w *Waiter, name string)
}

// silent is a channel that nothing is told on, because the store calls Tell.
type silent struct{ name string }

func (c silent) channel(string) string                 { return c.name }
func (silent) wait(*Waiter, string)                    {}
func (silent) hold()                                   {}
func (silent) leave(*Waiter)                           {}
func (silent) attend(context.Context, *Waiter, string) {}
