package soak

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/lab/faults/faultproxy"
	"github.com/headgate/headgate/lab/faults/internal/lab"
)

// breaks are the faults, in turn. Each heals after a while.
var breaks = []struct {
	name string
	do   func(*lab.Lab, []*program, func()) error
}{
	{"resets after the request", link(faultproxy.Fault{ResetReplies: 5})},
	{"SIGSTOP", func(l *lab.Lab, _ []*program, wait func()) error {
		if err := l.Primary.Stop(); err != nil {
			return err
		}
		wait()
		return l.Primary.Continue()
	}},
	{"half-open connections", func(l *lab.Lab, programs []*program, wait func()) error {
		err := each(programs, l, func(p *faultproxy.Proxy) { p.Freeze() })
		wait()
		return err
	}},
	{"SCRIPT FLUSH", command("SCRIPT FLUSH")},
	{"latency", link(faultproxy.Fault{Delay: 10 * time.Millisecond})},
	{"OOM", func(l *lab.Lab, _ []*program, wait func()) error {
		if err := l.Primary.Run("CONFIG SET maxmemory 1"); err != nil {
			return err
		}
		wait()
		return l.Primary.Run("CONFIG SET maxmemory 0")
	}},
	{"FLUSHALL", command("FLUSHALL")},
	{"replies that stop halfway", link(faultproxy.Fault{CutReplies: 50})},
	{"connections cut", func(l *lab.Lab, programs []*program, _ func()) error {
		return each(programs, l, (*faultproxy.Proxy).Cut)
	}},
	{"restart", func(l *lab.Lab, _ []*program, wait func()) error {
		l.Primary.Kill()
		wait()
		return l.Primary.Launch()
	}},
	{"a link without traffic", link(faultproxy.Fault{Hold: true})},
	{"CLIENT KILL", command("CLIENT KILL TYPE normal")},
	{"connections refused", func(l *lab.Lab, programs []*program, wait func()) error {
		set(programs, l, faultproxy.Fault{Refuse: true})
		err := each(programs, l, (*faultproxy.Proxy).Cut)
		wait()
		set(programs, l, faultproxy.Fault{})
		return err
	}},
}

func command(line string) func(*lab.Lab, []*program, func()) error {
	return func(l *lab.Lab, _ []*program, _ func()) error { return l.Primary.Run(line) }
}

func link(f faultproxy.Fault) func(*lab.Lab, []*program, func()) error {
	return func(l *lab.Lab, programs []*program, wait func()) error {
		set(programs, l, f)
		wait()
		set(programs, l, faultproxy.Fault{})
		return nil
	}
}

func set(programs []*program, l *lab.Lab, f faultproxy.Fault) {
	for _, p := range programs {
		p.links.Set(f, l.Primary.Addr)
	}
}

func each(programs []*program, l *lab.Lab, do func(*faultproxy.Proxy)) error {
	for _, p := range programs {
		link, err := p.links.Link(l.Primary.Addr)
		if err != nil {
			return err
		}
		do(link)
	}
	return nil
}

// breakInTurn breaks something at every interval, until the context ends.
func breakInTurn(ctx context.Context, cfg Config, l *lab.Lab, programs []*program) error {
	tick := time.NewTicker(cfg.Every)
	defer tick.Stop()
	began := time.Now()
	wait := func() { time.Sleep(min(2*time.Second, cfg.Every/3)) }
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		b := breaks[n%len(breaks)]
		fmt.Fprintf(cfg.Log, "%4v %s\n", time.Since(began).Round(time.Second), b.name)
		if err := b.do(l, programs, wait); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
}
