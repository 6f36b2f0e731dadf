package adapters_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

const answersEnv = "HEADGATE_ANSWERS_TEST" // framework, number of the process, address and prefix

// TestAnswersServer is the process that TestAnswersSurviveKills kills. Its handler makes a payment that has
// a unique index on the id, and answers with the payment's number and one of its own.
func TestAnswersServer(t *testing.T) {
	var name, number, addr, prefix string
	if _, err := fmt.Sscan(os.Getenv(answersEnv), &name, &number, &addr, &prefix); err != nil {
		t.Skip("runs in a process of its own")
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	gate := core.Must(core.NewRedis(client, core.Config{Prefix: prefix, Timeout: gatetest.BusyTimeout}))
	replay := core.Must(nethttp.NewReplay(nil, nethttp.ReplayConfig{
		Once: core.Must(once.New(gate, once.Config{Name: "payments", Window: time.Hour, TTL: time.Second})),
		ID:   byIdempotencyKey, Answers: nethttp.Answers{Keys: [][]byte{[]byte("0123456789abcdef")}},
	}))
	pay := func(w http.ResponseWriter, r *http.Request) {
		ctx, id, own := context.WithoutCancel(r.Context()), prefix+r.Header.Get("Idempotency-Key"), rand.Text()
		if err := client.RPush(ctx, id+":runs", number).Err(); err != nil {
			http.Error(w, "no database", http.StatusServiceUnavailable)
			return
		}
		made, err := client.SetNX(ctx, id+":payment", own, time.Hour).Result()
		if err == nil && made {
			err = client.Incr(ctx, id+":made").Err()
		}
		payment, other := client.Get(ctx, id+":payment").Result()
		if err != nil || other != nil {
			http.Error(w, "no database", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Location", "/payments/"+payment)
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintln(w, payment, own, strings.Repeat(own, mathrand.IntN(300)))
	}
	at := slices.IndexFunc(frameworks, func(fw framework) bool { return fw.test() == name })
	server := httptest.NewServer(frameworks[at].around(func(h http.Handler) http.Handler { return h }, pay, replay))
	defer server.Close()
	fmt.Println("at " + server.URL)
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
}

// A client that asks until it has two answers gets the same bytes twice, however often the server is killed
// at random moments. The payment is made once, and its handler runs again only in a later process.
func TestAnswersSurviveKills(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	posts := 60
	if gatetest.Long() {
		posts = 2000
	}
	for _, fw := range frameworks {
		framework := fw.test()
		t.Run(framework, func(t *testing.T) {
			t.Parallel()
			k := &killing{T: t, setting: framework + " %d " + s.Addr + " " + s.Prefix}
			k.spawn()
			ids := make(chan string)
			var clients sync.WaitGroup
			for range 16 {
				clients.Go(func() {
					for id := range ids {
						k.askTwice(id)
					}
				})
			}
			for i := range posts {
				ids <- fmt.Sprintf("%s-%d", framework, i)
			}
			close(ids)
			clients.Wait()
			client, again := s.Client(t), 0
			for i := range posts {
				id := fmt.Sprintf("%s%s-%d", s.Prefix, framework, i)
				made := client.Get(t.Context(), id+":made").Val()
				runs := client.LRange(t.Context(), id+":runs", 0, -1).Val()
				if made != "" && made != "1" || len(slices.Compact(slices.Clone(runs))) != len(runs) {
					t.Errorf("%s was paid %s times, by processes %v", id, made, runs)
				}
				again += len(runs) - 1
			}
			t.Logf("%d posts, %d kills, %d handlers cut short, %d answers repeated", posts, k.kills, again, k.repeated.Load())
			if k.kills == 0 || k.repeated.Load() < int64(posts) {
				t.Error("too few")
			}
		})
	}
}

// killing is a server that is killed again and again, and its clients.
type killing struct {
	*testing.T
	setting  string
	repeated atomic.Int64

	mu    sync.Mutex
	kill  func()
	kills int
	left  int // answers until the next kill
	url   string
}

func (k *killing) spawn() {
	var lines *bufio.Scanner
	_, lines, k.kill = redistest.StartKillable(k.T, "TestAnswersServer", answersEnv+"="+fmt.Sprintf(k.setting, k.kills))
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "at "); ok {
			k.url, k.left = url, 3+mathrand.IntN(40)
			return
		}
	}
	k.Error("the server has not begun")
}

// tick kills the server at a random answer.
func (k *killing) tick() (url string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left--; k.left <= 0 {
		k.kill()
		k.kills++
		k.spawn()
	}
	return k.url
}

// askTwice asks until it has two answers.
func (k *killing) askTwice(id string) {
	var first string
	for giveUp := time.Now().Add(gatetest.LongTimeout); time.Now().Before(giveUp) && !k.Failed(); {
		response, err := postTo(k.Context(), k.tick()+"/users/1", id, "pay "+id, "")
		switch {
		case err != nil || response.status == http.StatusServiceUnavailable:
		case response.status == http.StatusConflict && response.header.Get("Retry-After") != "":
			<-time.After(20 * time.Millisecond)
		case response.status != http.StatusCreated:
			k.Errorf("%s: %v", id, response)
			return
		case response.header.Get("Idempotency-Replayed") == "" && first != "":
			k.Errorf("%s was paid again: %q, %q", id, first, response.body)
			return
		case first == "":
			first = response.header.Get("Location") + response.body
		default:
			k.repeated.Add(1)
			if again := response.header.Get("Location") + response.body; again != first {
				k.Errorf("%s: %q, and first %q", id, again, first)
			}
			return
		}
	}
	k.Errorf("%s has no two answers", id)
}
