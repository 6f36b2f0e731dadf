package trips

// Parcel is what a call carries to a server.
type Parcel interface {
	// Joins reports whether the parcel may share a script with another. On a cluster the other is
	// below the same outermost part.
	Joins(o Parcel) bool
	// Batch returns an empty batch for the parcel and for those that it joins.
	Batch() Batch
}

// MaxArguments bounds KEYS and ARGV of one script. Some services refuse scripts with more than 3,999.
const MaxArguments = 3900

// Batch is parcels that share a script. One goroutine uses it at a time.
type Batch interface {
	// Add adds a parcel. The weights of the parcels bound KEYS and ARGV to MaxArguments.
	Add(Parcel)
	// Command writes the command that carries the parcels. Afterwards the batch reads nothing that
	// belongs to the parcels' callers: they may have left.
	Command() Command
	// Deliver hands each parcel its part of the script's reply. Its error fails all parcels.
	Deliver(Reply) error
	// Release lets the batch be used again.
	Release()
}

// Command is a script and its arguments.
type Command struct {
	Script *Script
	Args   []any // of EVALSHA, from Script.Begin on
	Texts  bool  // the reply holds texts too
	Number bool  // the reply may be one number in place of a list
}

// Reply is what a script replies.
type Reply struct {
	Numbers []int64 // unless Command.Texts
	Values  []any   // otherwise
}
