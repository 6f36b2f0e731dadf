package recipes

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
)

func isBulk(r *http.Request) bool { return r.Header.Get("X-Bulk") != "" }

func classRequest(tenant, class string) *http.Request {
	r := tenantRequest(tenant, "{}")
	if class == "bulk" {
		r.Header.Set("X-Bulk", "1")
	}
	return r
}

// rooms runs requests that end when they are told.
type rooms struct {
	entered chan string
	end     map[string]chan struct{}
}

func newRooms() *rooms {
	return &rooms{make(chan string, 100), map[string]chan struct{}{"bulk": make(chan struct{}), "interactive": make(chan struct{})}}
}

func (m *rooms) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	class := "interactive"
	if isBulk(r) {
		class = "bulk"
	}
	m.entered <- class
	<-m.end[class]
}

func TestBulkIsShedFirst(t *testing.T) {
	each(t, func(t *testing.T, gate *core.Gate) {
		quick := Shed(gate, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), isBulk)
		passes := func(class string, n int) (passed int) {
			for range n {
				if serve(quick, classRequest("acme", class)).Code == http.StatusOK {
					passed++
				}
			}
			return passed
		}
		if bulk, interactive := passes("bulk", 90), passes("interactive", 30); bulk != 80 || interactive != 20 {
			t.Errorf("%d in bulk and %d others passed in a minute, want 80 and 20", bulk, interactive)
		}
		at := newRooms()
		h := Shed(gate, at, isBulk)
		var running sync.WaitGroup
		refused := make(chan int, 20)
		for _, tt := range []struct {
			class string
			want  int
		}{{"bulk", 8}, {"interactive", 2}} {
			passed := 0
			for range 10 {
				running.Go(func() {
					if status := serve(h, classRequest("globex", tt.class)).Code; status != http.StatusOK {
						refused <- status
					}
				})
				select {
				case <-at.entered:
					passed++
				case <-refused:
				}
			}
			if passed != tt.want {
				t.Errorf("%d run at a time in %s, want %d", passed, tt.class, tt.want)
			}
		}
		close(at.end["bulk"])
		close(at.end["interactive"])
		running.Wait()
	})
}

func TestInteractiveHasItsFloor(t *testing.T) {
	each(t, func(t *testing.T, gate *core.Gate) {
		at := newRooms()
		h := Floors(gate, at, isBulk)
		slots := core.Must(semaphore.New(gate, semaphore.Config{Name: "classes"}))
		tenant := core.Must(core.NewKey("acme"))
		var all sync.WaitGroup
		send := func(class string, n, waiting int) {
			for range n {
				all.Go(func() {
					gatetest.Equal(t, serve(h, classRequest("acme", class)).Code, http.StatusOK, "%s: status", class)
				})
			}
			gatetest.Eventually(t, "requests wait", func() bool {
				_, n, err := slots.Holders(context.Background(), tenant)
				return err == nil && n == waiting
			})
		}
		next := func(n int) (classes []string) {
			for range n {
				classes = append(classes, <-at.entered)
			}
			return classes
		}
		send("bulk", 12, 4) // 8 have a slot
		next(8)
		send("interactive", 2, 4)
		next(2)
		send("interactive", 6, 10)
		var got []string
		for range 5 {
			at.end["bulk"] <- struct{}{}
			got = append(got, next(1)...)
		}
		if want := []string{"interactive", "interactive", "interactive", "interactive"}; !slices.Equal(got[:4], want) {
			t.Errorf("the next slots went to %v", got)
		}
		close(at.end["bulk"])
		close(at.end["interactive"])
		all.Wait()
	})
}
