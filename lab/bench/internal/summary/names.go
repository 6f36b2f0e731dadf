package summary

import (
	"fmt"

	"github.com/headgate/headgate/lab/bench/internal/locks"
	"github.com/headgate/headgate/lab/bench/internal/lone"
	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
)

// names are the columns of figures. Titles have numbers of the plan.
type names struct {
	size, text         column
	busy, crowd        string // numbers of callers
	keys               string
	lone, denied       column
	alone, aloneLock   column // instructions
	fleet              column
	spread, spreadMany column
	hot, hotMany       column
	spreadCPU, hotCPU  column
	pair               column
	handOff, handOff99 column
	inMemory           column
	above, aboveBytes  column
	withPlan           column
	meter, meterCPU    column
}

func namesOf(plan measure.Plan) names {
	busy, crowd := fmt.Sprint(plan.Busy()), fmt.Sprint(plan.Workers[3])
	keys := report.Count(float64(plan.Spread()))
	const (
		hot      = "Throughput on one key, allowed, x the PING rate"
		handlers = "Middleware, one request that is allowed"
		chat     = "First byte of a streamed chat"
	)
	lock := fmt.Sprintf("One lock that %d clients want", locks.Clients)
	spread := "Throughput on " + keys + " keys, allowed, x the PING rate"
	work := "Work of the server, " + busy + " callers"
	return names{
		busy: busy, crowd: crowd, keys: keys,
		size:  column{table: "Size of a program", name: "stripped, KB"},
		text:  column{table: "Size of a program", name: "instructions, KB"},
		lone:  column{table: "One caller, one key, allowed", name: "p50 / PING"},
		alone: column{table: lone.Decisions, name: "/ EVALSHA"}, aloneLock: column{table: lone.Locks, name: "/ EVALSHA"},
		fleet:  column{table: lone.FleetTitle(plan), name: "CPU"},
		denied: column{table: "One key, denied", name: "p50, 1 caller"},
		spread: column{table: spread, name: "@" + busy}, spreadMany: column{table: spread, name: "@" + crowd},
		hot: column{table: hot, name: "@" + busy}, hotMany: column{table: hot, name: "@" + crowd},
		spreadCPU: column{table: work, name: "CPU, " + keys + " keys"},
		hotCPU:    column{table: work, name: "CPU, one key"},
		pair:      column{table: "Locks that nobody else wants", name: "p50 / PING"},
		handOff:   column{table: lock, name: "hand-off p50"}, handOff99: column{table: lock, name: "hand-off p99"},
		inMemory: column{table: "Decisions in memory", name: "ns, 1 caller"},
		above:    column{table: handlers, name: "above bare"}, aboveBytes: column{table: handlers, name: "bytes above bare"},
		withPlan: column{table: "A decision with a plan beside one without", name: "with / without, 1 caller"},
		meter:    column{table: chat, name: "over a PING"}, meterCPU: column{table: chat, name: "CPU"},
	}
}
