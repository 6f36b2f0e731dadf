package trips

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/breaker"
)

// Config configures Servers.
type Config struct {
	Client redis.UniversalClient
	// Cluster says that a script has keys of one hash slot only.
	Cluster bool
	// Timeout bounds a call.
	Timeout time.Duration
	// Tasks run what sends and probes.
	Tasks *breaker.Tasks
	// Probe returns a parcel below that outermost part that decides nothing for anybody.
	Probe func(outermost string) Parcel
	// Notify receives what becomes of a server. It may be nil.
	Notify func(context.Context, Notice)
}

// Notice says what became of a server.
type Notice struct {
	Kind Kind
	Node string // its address, unless a script was missing
	Err  error  // why it was opened
}

// Kind is the kind of a Notice.
type Kind uint8

// The kinds of a Notice.
const (
	Opened        Kind = iota // the server fails
	Closed                    // the server answers again, or is not asked any more
	Overloaded                // calls ended that this process could not send or read in time
	ScriptMissing             // a server did not know a script, and has it now
)
