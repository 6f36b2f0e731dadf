package main

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// traffic lets the tenants ask the API until ctx ends. The first one asks for more than it has, of
// reports and of exports.
func traffic(ctx context.Context, url string) {
	var all sync.WaitGroup
	for i, tenant := range tenants {
		all.Go(func() { repeat(ctx, url+"/reports", tenant, time.Duration(2*i*i+1)*300*time.Millisecond) })
	}
	for range 3 {
		all.Go(func() { repeat(ctx, url+"/exports", tenants[0], time.Second) })
	}
	all.Go(func() { repeat(ctx, url+"/exports", tenants[1], time.Second) })
	all.Wait()
}

// repeat asks for a page again and again, with a pause after each answer.
func repeat(ctx context.Context, url, tenant string, pause time.Duration) {
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return
		}
		r.Header.Set("X-Tenant", tenant)
		if response, err := http.DefaultClient.Do(r); err == nil {
			_ = response.Body.Close()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}
