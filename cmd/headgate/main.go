// Command headgate looks at the limits, quotas and slots that Headgate keeps in Redis, says why a
// request would be denied, changes them, and replays access logs against plans.
//
// See https://github.com/headgate/headgate/blob/main/docs/reference/command.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], terminal{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}
