// Package recipes has the programs of docs/recipes.md, which its tests run.
package recipes

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

// Login lets a name fail 5 times in 10 minutes, then blocks it for 15. The handler answers 401 to a
// wrong password and 303 to a right one.
func Login(gate *core.Gate, check http.Handler) http.Handler {
	name := keyfunc.Must(keyfunc.Name(func(r *http.Request) string {
		return r.PostFormValue("user")
	}, nil))
	tries := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "login-address", Algorithm: core.AnyHour(100), OnFailure: core.FailClosed,
	}))
	failures := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "login-name", OnFailure: core.FailClosed,
		Algorithm: core.Block{Strikes: 5, Within: 10 * time.Minute, For: 15 * time.Minute},
	}))
	running := core.Must(semaphore.New(gate, semaphore.Config{Name: "logins", OnFailure: core.FailClosed}))
	guard := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate:  gate,
		Rules: []nethttp.Rule{{Policy: tries, Key: keyfunc.RemoteIP()}},
		Blocks: []nethttp.BlockRule{{
			Policy: failures, Key: name,
			Strikes: nethttp.StrikeOn(http.StatusUnauthorized),
			Forget:  nethttp.ForgetOn(http.StatusSeeOther),
		}},
		Slot: &nethttp.Slot{ // one guess at a time, so that no guess escapes the block
			Semaphore: running, MaxWait: 5 * time.Second,
			Caps: []nethttp.Cap{{Name: "logins", Key: name, Limit: 1}},
		},
	}))
	return guard.Handler(check)
}

// SignUp lets an address make 3 accounts a day and send the form 20 times an hour. The handler
// answers 201 when it has made an account.
func SignUp(gate *core.Gate, create http.Handler) http.Handler {
	forms := core.Must(core.NewPolicy(core.PolicyConfig{Name: "sign-up-forms", Algorithm: core.AnyHour(20)}))
	accounts := core.Must(core.NewPolicy(core.PolicyConfig{
		Name:      "sign-up-accounts",
		Algorithm: core.SlidingWindow{Limit: 3, Window: 24 * time.Hour, Buckets: 24},
	}))
	guard := core.Must(nethttp.NewGuard(nethttp.Config{Gate: gate, Rules: []nethttp.Rule{
		{Policy: forms, Key: keyfunc.RemoteIP()},
		{Policy: accounts, Key: keyfunc.RemoteIP(), Settle: nethttp.CountOnly(http.StatusCreated)},
	}}))
	return guard.Handler(create)
}
