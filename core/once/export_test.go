package once

// Lost returns a channel that is closed when the lease of the Attempt is lost.
func (a *Attempt) Lost() <-chan struct{} { return a.lease.Lost() }
