// Webhooks is a receiver of signed webhooks (https://www.standardwebhooks.com) that handles each
// event once, and blocks senders whose signatures are wrong.
//
//	go -C _examples/webhooks run .
//
// It prints curl lines whose signatures are right, and one with a wrong signature. The secret is
// WEBHOOK_SECRET, or a new one, which it prints. It keeps what it remembers in Redis at REDIS_URL,
// or in memory if that is not set. It serves on ADDR.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/headgate/headgate/_examples/demo"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/keyfunc"
)

// sample is the event that the printed lines send.
const sample = `{"type":"paid"}`

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	written := os.Getenv("WEBHOOK_SECRET")
	if written == "" {
		written = newSecret()
		log.Printf("the secret is %s: WEBHOOK_SECRET is not set", written)
	}
	secret, err := parseSecret(written)
	if err != nil {
		return err
	}
	gate, err := demo.NewGate()
	if err != nil {
		return err
	}
	receiver, err := newReceiver(gate, secret, handle)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: receiver, ReadHeaderTimeout: 5 * time.Second}
	shut := make(chan error, 1)
	go func() {
		<-ctx.Done()
		stop() // a second interrupt ends the program at once
		shut <- server.Shutdown(context.Background())
	}()
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	fmt.Printf(`Receiving webhooks on http://%[1]s/webhooks. Try, within 5 minutes, an event sent twice, and four forgeries:

  for i in 1 2; do curl -w '%%{http_code}\n' -H 'Webhook-Id: evt_1' -H 'Webhook-Timestamp: %[2]s' -H 'Webhook-Signature: %[3]s' -d '%[4]s' http://%[1]s/webhooks; done
  for i in 1 2 3 4; do curl -so /dev/null -w '%%{http_code}\n' -H 'Webhook-Id: evt_2' -H 'Webhook-Timestamp: %[2]s' -H 'Webhook-Signature: v1,forged' -d '%[4]s' http://%[1]s/webhooks; done

`, listener.Addr(), timestamp, sign(secret, "evt_1", timestamp, []byte(sample)), sample)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	// The Gate is closed when no handler runs, so every event that was handled is remembered.
	return errors.Join(<-shut, gate.Close(context.Background()))
}

// newReceiver returns the handler of webhooks. handle is called once for each event id, and again
// only if it failed.
func newReceiver(
	gate *core.Gate, secret []byte, handle func(ctx context.Context, event []byte) error,
) (http.Handler, error) {
	// Three wrong signatures in a minute block the sender for a minute, then for two, up to a day.
	forgers, err := core.NewPolicy(core.PolicyConfig{Name: "forgers", Algorithm: core.Block{
		Strikes: 3, Within: time.Minute, For: time.Minute, Most: 24 * time.Hour,
	}})
	if err != nil {
		return nil, err
	}
	perSender, err := core.NewPolicy(core.PolicyConfig{Name: "webhooks", Algorithm: core.PerSecond(50)})
	if err != nil {
		return nil, err
	}
	senders, err := nethttp.NewGuard(nethttp.Config{
		Gate: gate,
		Blocks: []nethttp.BlockRule{{
			Policy: forgers, Key: keyfunc.RemoteIP(),
			Strikes: nethttp.StrikeOn(http.StatusUnauthorized), HideRetryAfter: true,
		}},
		Rules: []nethttp.Rule{{Policy: perSender, Key: keyfunc.RemoteIP()}},
	})
	if err != nil {
		return nil, err
	}

	// An id is remembered for longer than the sender tries again.
	events, err := once.New(gate, once.Config{Name: "events", Window: 7 * 24 * time.Hour})
	if err != nil {
		return nil, err
	}
	once, err := nethttp.NewReplay(nil, nethttp.ReplayConfig{
		Once: events, ID: keyfunc.Must(keyfunc.Header("Webhook-Id")),
		HandledStatus: http.StatusNoContent, // the sender need not try again
	})
	if err != nil {
		return nil, err
	}

	receive := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event, err := io.ReadAll(r.Body)
		if err == nil {
			err = handle(r.Context(), event)
		}
		if err != nil {
			log.Print(err)
			http.Error(w, "the event could not be handled", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux := http.NewServeMux()
	// The signature is verified before the id is looked at: otherwise anybody could use up an id.
	mux.Handle("POST /webhooks", senders.Handler(verified(secret, time.Now, once.Handler(receive))))
	return mux, nil
}

// handle is what the program does with an event.
func handle(_ context.Context, event []byte) error {
	fmt.Printf("event %s\n", event)
	return nil
}
