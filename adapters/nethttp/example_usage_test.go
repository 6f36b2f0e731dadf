package nethttp_test

import (
	"fmt"
	"log"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// A client reads what it has used. The clock of the example stands still.
func ExampleGuard_Usage() {
	gate := newGate()
	api, err := nethttp.NewGuard(nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{
		Policy: newPolicy("day", core.Calendar{Limit: 1000, Every: core.PeriodDay, In: time.UTC}),
		Key:    keyfunc.BearerToken(), // which an earlier middleware has checked
	}}})
	if err != nil {
		log.Fatal(err)
	}
	request(api.Handler(hello), "Authorization", "Bearer abc")
	w := request(api.Usage(), "Authorization", "Bearer abc")
	fmt.Println(w.Header().Get("Content-Type"))
	fmt.Print(w.Body)
	// Output:
	// application/json
	// {"policies":[{"name":"day","q":1000,"qu":"requests","w":86400,"used":1,"r":999,"t":57600,"reset":57600}],"caps":[]}
}
