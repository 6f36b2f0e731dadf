// Package starve runs a process that is short of CPU beside a Redis that is well, and then beside one
// that stands still, and holds what happens against what docs/failure.md promises.
package starve

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/headgate/headgate/lab/faults/internal/lab"
)

// Config says how to run.
type Config struct {
	Lasts    time.Duration // how long Redis is well
	Smoke    bool          // one setting only
	Progress io.Writer
}

// setting is how short of CPU a process is.
type setting struct {
	computing int // goroutines
	procs     int // GOMAXPROCS
}

var settings = []setting{{20, 1}, {50, 1}, {20, 2}, {50, 2}}

const (
	// quick is how long another process takes to connect at most, if the machine has CPU.
	quick = 50 * time.Millisecond
	// enough is the share of its processors that a process gets at least, if the machine has CPU.
	enough = 0.9
	// attempts is how often a setting is run that fails while the machine has none.
	attempts = 3
)

var errFine = errors.New("ok")

// slice is for how long a goroutine computes until the scheduler takes the processor away: it looks
// every 10 ms for those that have run for 10 ms.
const slice = 20 * time.Millisecond

// notices returns within what time the process is to notice that Redis stands still: within three
// seconds, or within four turns of a goroutine if these take longer, which are one to read what came
// before, one to connect, and two by chance.
func (s setting) notices() time.Duration {
	turn := slice * time.Duration(s.computing/s.procs)
	return max(3*time.Second, 4*turn)
}

// outcome is what happened in a setting.
type outcome struct {
	setting
	report
	witness time.Duration // the longest that another process took to connect
	noticed time.Duration // from the stop of Redis until the circuit opened
}

// Run runs every setting, one after the other, and writes a table. Its error is what breaks a promise.
func Run(ctx context.Context, cfg Config, out io.Writer) error {
	settings := settings
	if cfg.Smoke {
		settings = settings[:1]
	}
	var outcomes []*outcome
	var broken []error
	for _, s := range settings {
		var o *outcome
		var err error
		for range attempts {
			o = &outcome{setting: s}
			if err = o.run(ctx, cfg.Lasts); err == nil {
				err = o.judge()
			}
			fmt.Fprintf(cfg.Progress, "%d goroutines compute on %.2f of %d processors, another process connects in %v: %v\n",
				s.computing, o.Share, s.procs, o.witness.Round(time.Millisecond), cmp.Or(err, errFine))
			if err == nil || o.witness <= quick && o.Share >= enough {
				break // otherwise the machine is too busy to tell
			}
		}
		outcomes, broken = append(outcomes, o), append(broken, err)
	}
	write(out, outcomes)
	return errors.Join(broken...)
}

// run runs the process of one setting, and this one as the witness.
func (o *outcome) run(ctx context.Context, lasts time.Duration) error {
	l, err := lab.Start(lab.Config{})
	if err != nil {
		return err
	}
	defer l.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lasts+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-starved", strconv.Itoa(o.computing), "-redis", l.Primary.Addr, "-lasts", lasts.String())
	cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(o.procs))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(stdout)
	read := func(v any) error {
		if !lines.Scan() {
			return errors.Join(errors.New("the process ended"), lines.Err())
		}
		return json.Unmarshal(lines.Bytes(), v)
	}
	var began bool
	if err := read(&began); err != nil {
		return err
	}
	well, over := context.WithCancel(ctx)
	seen := make(chan time.Duration, 1)
	go func() { seen <- watch(well, l.Primary.Addr) }()
	err = read(&o.report)
	over()
	o.witness = <-seen
	if err != nil || o.Opened > 0 {
		return err
	}
	if err := l.Primary.Stop(); err != nil {
		return err
	}
	stopped := time.Now()
	var n notice
	if err := read(&n); err != nil {
		return err
	}
	o.noticed, o.Share = n.At.Sub(stopped), min(o.Share, n.Share)
	return nil
}

// watch connects to Redis again and again, and returns the longest that this took.
func watch(ctx context.Context, addr string) (longest time.Duration) {
	for ctx.Err() == nil {
		began := time.Now()
		conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err == nil {
			if _, err = conn.Write([]byte("PING\r\n")); err == nil {
				_, err = conn.Read(make([]byte, 16))
			}
			_ = conn.Close()
		}
		if took := time.Since(began); err == nil && ctx.Err() == nil {
			longest = max(longest, took)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return longest
}

// judge holds the outcome against its promise.
func (o *outcome) judge() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Opened > 0 {
		wrong("the circuit of a Redis that was well opened %d times: %s", o.Opened, o.Why)
	}
	if o.Admitted > limit {
		wrong("%d of %d were admitted", o.Admitted, limit)
	}
	if o.Lost > 0 {
		wrong("%d slots were lost", o.Lost)
	}
	if o.noticed > o.notices() {
		wrong("a Redis that stood still was noticed after %v", o.noticed)
	}
	return errors.Join(errs...)
}

// write writes the outcomes as a table of Markdown.
func write(out io.Writer, outcomes []*outcome) {
	fmt.Fprintln(out, "| goroutines that compute | GOMAXPROCS | share of CPU | another process connects in, ms | decisions |"+
		" admitted of 50 | refused by Closed | circuits opened | slots lost of 50 | stop noticed after, s |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|")
	for _, o := range outcomes {
		fmt.Fprintf(out, "| %d | %d | %.2f | %d | %d | %d | %d of %d | %d | %d | %.1f |\n", o.computing, o.procs, o.Share,
			o.witness.Milliseconds(), o.Decisions, o.Admitted, o.Refused, o.Asked, o.Opened, o.Lost, o.noticed.Seconds())
	}
}
