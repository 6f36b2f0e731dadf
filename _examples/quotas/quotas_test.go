package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// api is two replicas of the service, or one in memory.
type api struct {
	*testing.T
	urls []string
}

func newAPI(t *testing.T, s *redistest.Server, file string) *api {
	t.Helper()
	a, db := &api{T: t}, newDatabase()
	for range 2 {
		var client redis.UniversalClient
		if s != nil {
			client = s.Client(t)
		}
		service := gatetest.Must(newService(client, file, db, gatetest.LongTimeout))(t)
		server := httptest.NewServer(service.handler())
		t.Cleanup(func() {
			server.Close()
			service.book.Close()
			if err := service.gate.Close(t.Context()); err != nil && t.Context().Err() == nil {
				t.Error(err)
			}
		})
		if a.urls = append(a.urls, server.URL); s == nil {
			break
		}
	}
	return a
}

// do sends a request to a replica and returns the status and the body.
func (a *api) do(replica int, method, path, key string) (status int, body []byte) {
	a.Helper()
	r := core.Must(http.NewRequestWithContext(a.Context(), method, a.urls[replica%len(a.urls)]+path, nil))
	r.Header.Set("X-Api-Key", key)
	response := gatetest.Must(http.DefaultClient.Do(r))(a)
	defer response.Body.Close()
	recorder := httptest.NewRecorder()
	gatetest.Must(recorder.Body.ReadFrom(response.Body))(a)
	return response.StatusCode, recorder.Body.Bytes()
}

// quota returns what a tenant reads of its month.
func (a *api) quota(replica int, key string) (limit, used int64) {
	a.Helper()
	status, body := a.do(replica, "GET", "/usage", key)
	var usage struct {
		Policies []struct {
			Name string
			Q    int64
			Used int64
		}
	}
	if err := json.Unmarshal(body, &usage); status != http.StatusOK || err != nil {
		a.Fatalf("status %d, %s, %v", status, body, err)
	}
	for _, p := range usage.Policies {
		if p.Name == "month" {
			limit, used = p.Q, p.Used
		}
	}
	return limit, used
}

// reaches waits until all replicas tell a tenant that limit.
func (a *api) reaches(key string, limit int64) {
	a.Helper()
	for replica := range a.urls {
		start := time.Now()
		for now, _ := a.quota(replica, key); now != limit; now, _ = a.quota(replica, key) {
			if time.Since(start) > 10*time.Second {
				a.Fatalf("replica %d: the limit is %d, want %d", replica, now, limit)
			}
		}
	}
}

func each(t *testing.T, f func(t *testing.T, a *api, s *redistest.Server)) {
	t.Run("memory", func(t *testing.T) { f(t, newAPI(t, nil, "plans.yaml"), nil) })
	t.Run("redis", func(t *testing.T) {
		s := redistest.Start(t)
		f(t, newAPI(t, s, "plans.yaml"), s)
	})
}

// While traffic runs, a tenant is upgraded and topped up. No request is refused afterwards that the
// new limits admit.
func TestUpgradeWhileTrafficRuns(t *testing.T) {
	each(t, func(t *testing.T, a *api, _ *redistest.Server) {
		served := int64(0) // the burst of the free plan, and 1 in each second that it takes
		for ; served < 20; served++ {
			status, body := a.do(int(served), "GET", "/answer", "acme-key")
			if status == http.StatusTooManyRequests {
				break
			}
			gatetest.Equal(t, status, http.StatusOK, "request %d: status (%s)", served, body)
		}
		if served < 10 { // a slow machine may serve 20
			t.Errorf("%d requests were served", served)
		}
		var wg sync.WaitGroup
		stop := make(chan struct{})
		wg.Go(func() { // of a neighbour
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					a.do(i, "GET", "/answer", "initech-key")
				}
			}
		})
		if status, _ := a.do(0, "PUT", "/tenants/acme/plan/pro", "operator-key"); status != http.StatusNoContent {
			t.Errorf("upgrade: status %d", status)
		}
		a.reaches("acme-key", 1000)
		for range 2 { // it counts once
			if status, _ := a.do(1, "PUT", "/tenants/acme/topups/invoice-1?units=500", "operator-key"); status != http.StatusNoContent {
				t.Errorf("top-up: status %d", status)
			}
		}
		a.reaches("acme-key", 1500)
		for i := range 50 {
			if status, body := a.do(i, "GET", "/answer", "acme-key"); status != http.StatusOK {
				t.Errorf("after the upgrade, request %d: status %d, %s", i, status, body)
			}
		}
		close(stop)
		wg.Wait()
		if limit, used := a.quota(0, "acme-key"); limit != 1500 || used != served+50 {
			t.Errorf("%d of %d used, want %d of 1500", used, limit, served+50)
		}
		if limit, used := a.quota(0, "initech-key"); limit != 20 || used > 20 {
			t.Errorf("the neighbour has used %d of %d", used, limit)
		}
	})
}

// The database tells Redis what was used and bought after it has lost its data.
func TestQuotaSurvivesLostData(t *testing.T) {
	s := redistest.Start(t)
	a := newAPI(t, s, "plans.yaml")
	for i := range 7 {
		a.do(i, "GET", "/answer", "acme-key")
	}
	a.do(0, "PUT", "/tenants/acme/plan/pro", "operator-key")
	a.do(0, "PUT", "/tenants/acme/topups/invoice-1?units=500", "operator-key")
	a.reaches("acme-key", 1500)
	gatetest.NoError(t, s.Client(t).FlushAll(t.Context()).Err())
	if limit, used := a.quota(0, "acme-key"); limit != 1500 || used != 7 {
		t.Errorf("%d of %d used, want 7 of 1500", used, limit)
	}
}

func TestOnlyOperatorsChangePlans(t *testing.T) {
	each(t, func(t *testing.T, a *api, _ *redistest.Server) {
		for _, test := range []struct {
			name, method, path, key string
			status                  int
		}{
			{"a tenant upgrades itself", "PUT", "/tenants/acme/plan/pro", "acme-key", http.StatusUnauthorized},
			{"a tenant tops itself up", "PUT", "/tenants/acme/topups/1?units=5", "acme-key", http.StatusUnauthorized},
			{"an unknown plan", "PUT", "/tenants/acme/plan/gold", "operator-key", http.StatusNotFound},
			{"no units", "PUT", "/tenants/acme/topups/1", "operator-key", http.StatusBadRequest},
			{"no key", "GET", "/usage", "", http.StatusUnauthorized},
		} {
			t.Run(test.name, func(t *testing.T) {
				if status, body := a.do(0, test.method, test.path, test.key); status != test.status {
					t.Errorf("status %d, want %d: %s", status, test.status, body)
				}
			})
		}
		if limit, _ := a.quota(0, "acme-key"); limit != 20 {
			t.Errorf("the limit is %d", limit)
		}
	})
}
