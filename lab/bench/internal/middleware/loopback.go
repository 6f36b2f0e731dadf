package middleware

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
)

// loopbackCallers is how many clients ask at once.
const loopbackCallers = 16

// loopback drives the same handlers behind servers, with connections that are kept.
func loopback(ctx context.Context, plan measure.Plan) (t report.Table, wrong, err error) {
	t = report.Table{
		Title: "Middleware behind a server on the loopback",
		Note: fmt.Sprintf("Requests a second of %d clients in the same process, which keep their connections, and that rate "+
			"over the one of the framework's bare handler just before and after. Otherwise as above.", loopbackCallers),
		Columns: []string{"framework", "", "requests/s", "over bare"},
	}
	transport := &http.Transport{MaxIdleConnsPerHost: loopbackCallers, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var driver measure.Driver
	var bare measure.Do
	for _, e := range lines() {
		h, err := e.build(outOfReach)
		if err != nil {
			return t, nil, fmt.Errorf("make %s of %s: %w", e.name, e.framework, err)
		}
		s := httptest.NewServer(h)
		defer s.Close()
		do := func(ctx context.Context, _, _ int) (bool, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/users/1", nil)
			if err != nil {
				return false, err
			}
			response, err := client.Do(r)
			if err != nil {
				return false, err
			}
			defer response.Body.Close()
			_, err = io.Copy(io.Discard, response.Body)
			return response.StatusCode == http.StatusOK, err
		}
		if e.name == "bare" {
			bare = do // lines begins each framework with it
		}
		load := measure.Load{Workers: loopbackCallers, Keys: 1, Slice: plan.Slice, Untimed: true}
		results, err := driver.Rounds(ctx, plan.Rounds, load, bare,
			[]measure.Contender{{Name: e.name, Kind: e.kind, Do: do}})
		if err != nil {
			return t, nil, err
		}
		r := &results[0]
		if _, refused, failed := r.Answered(); refused+failed > 0 && e.kind == measure.Ours {
			wrong = fmt.Errorf("%s of %s on the loopback: %d refused, %d failed", e.name, e.framework, refused, failed)
		}
		over := ""
		if e.name != "bare" {
			over = report.Number(r.ToPing(measure.Rate))
		}
		t.Add(e.framework, r.Label(), report.Count(r.Own(measure.Rate)), over)
	}
	return t, wrong, nil
}
