package recipes

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
)

// Downloads lets a tenant download 1 GiB a day. A download that has begun is sent whole. What it takes
// beyond the limit is owed.
func Downloads(gate *core.Gate, files http.Handler) http.Handler {
	down := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "bytes-down", Unit: core.UnitContentBytes,
		Algorithm: core.Calendar{Limit: 1 << 30, Every: core.PeriodDay, In: time.UTC},
	}))
	guard := core.Must(nethttp.NewGuard(nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{
		Policy: down, Key: byTenant,
		Cost: func(*http.Request) int64 { return 1 << 20 }, // while the download runs
		Settle: func(r *http.Request, _ int, _ int64) int64 {
			return nethttp.AdmissionFromContext(r.Context()).Written()
		},
	}}}))
	return guard.Handler(files)
}
