package matrix

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/lab/faults/faultproxy"
	"github.com/headgate/headgate/lab/faults/internal/lab"
)

// scene is where a fault happens.
type scene struct {
	*lab.Lab
	processes []*process
	sound     faultproxy.Fault
	lasts     time.Duration // how long a fault lasts
	shared    fence         // of a lock that all processes want
}

func (s *scene) wait() { time.Sleep(s.lasts) }

// count has the processes decide on the contended keys from now on.
func (s *scene) count() {
	for _, p := range s.processes {
		p.counts.Store(true)
	}
}

// set sets the links of all processes to all servers that hold data.
func (s *scene) set(f faultproxy.Fault) {
	for _, p := range s.processes {
		p.links.Set(f, s.Addrs()...)
	}
}

// each calls do with every link of a process to a server that holds data.
func (s *scene) each(do func(*faultproxy.Proxy)) error {
	for _, p := range s.processes {
		for _, addr := range s.Addrs() {
			link, err := p.links.Link(addr)
			if err != nil {
				return err
			}
			do(link)
		}
	}
	return nil
}

// link breaks all links for a while.
func link(f faultproxy.Fault) func(*scene) error {
	return func(s *scene) error {
		s.set(f)
		s.wait()
		s.set(s.sound)
		return nil
	}
}

// slow has each round trip take a fifth of a lease, for longer than a lease lasts.
func slow(s *scene) error {
	s.set(faultproxy.Fault{Delay: life / 10})
	if err := s.each((*faultproxy.Proxy).Cut); err != nil {
		return err
	}
	time.Sleep(life + s.lasts)
	s.set(s.sound)
	return nil
}

func freeze(s *scene) error { return s.each(func(p *faultproxy.Proxy) { p.Freeze() }) }

func mute(s *scene) error {
	s.set(faultproxy.Fault{Mute: true})
	if err := s.each((*faultproxy.Proxy).Cut); err != nil {
		return err
	}
	s.wait()
	s.set(s.sound)
	return nil
}

func refuse(s *scene) error {
	s.set(faultproxy.Fault{Refuse: true})
	if err := s.each((*faultproxy.Proxy).Cut); err != nil {
		return err
	}
	s.wait()
	s.set(s.sound)
	return nil
}

// drain takes all connections of the pools, each with a command that blocks.
func drain(s *scene) error {
	var wg sync.WaitGroup
	for _, p := range s.processes {
		for range lab.PoolSize {
			wg.Go(func() { // on failure a connection is free
				_ = p.client.BLPop(context.Background(), s.lasts, fmt.Sprintf("{%s}nothing", s.Outermost)).Err()
			})
		}
	}
	wg.Wait()
	return nil
}

// kill kills the primary as the processes see it: the kernel refuses their connections.
func kill(s *scene) error {
	s.Primary.Kill()
	for _, p := range s.processes {
		p.links.Set(faultproxy.Fault{Refuse: true}, s.Primary.Addr)
	}
	return nil
}

func killAndStart(s *scene) error {
	if err := kill(s); err != nil {
		return err
	}
	s.wait()
	return start(s)
}

func restart(s *scene) error {
	if err := kill(s); err != nil {
		return err
	}
	return start(s)
}

// start undoes kill.
func start(s *scene) error {
	if err := s.Primary.Launch(); err != nil {
		return err
	}
	s.set(s.sound)
	return s.Serves()
}

func stop(s *scene) error {
	if err := s.Primary.Stop(); err != nil {
		return err
	}
	s.wait()
	return s.Primary.Continue()
}

func failover(s *scene) error { return s.Failover() }

// split leaves the first process with the old primary, cut off from the sentinels, while the second
// follows the new one. Then both spend the limit.
func split(s *scene) error {
	cut := func(f faultproxy.Fault) {
		s.processes[0].links.Set(f, s.SentinelAddrs()...)
		s.Isolate(f.Hold)
	}
	cut(faultproxy.Fault{Hold: true})
	if err := s.Promoted(); err != nil {
		return err
	}
	s.wait() // the second process learns of it
	s.count()
	s.wait()
	cut(faultproxy.Fault{})
	return nil
}

// reshard moves the slot of the keys to another server and back.
func reshard(s *scene) error {
	if err := s.MoveSlot(s.Primary, s.Other); err != nil {
		return err
	}
	s.wait()
	return s.MoveSlot(s.Other, s.Primary)
}

// load restarts the server with a snapshot that takes a while to load.
func load(s *scene) error {
	const keys = 4_000
	if err := s.Primary.Run(fmt.Sprintf("DEBUG POPULATE %d {%s}filler", keys, s.Outermost), "SAVE"); err != nil {
		return err
	}
	if err := kill(s); err != nil {
		return err
	}
	each := s.lasts.Microseconds() / keys
	err := s.Primary.Launch("--key-load-delay", fmt.Sprint(each),
		"--loading-process-events-interval-bytes", "1024")
	s.set(s.sound)
	for err == nil {
		var loading string
		if loading, err = s.Primary.Info("loading"); loading == "0" {
			return s.Serves()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// busy has a script run that never ends.
func busy(s *scene) error {
	if err := s.Primary.Run("CONFIG SET busy-reply-threshold 100"); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _, _ = s.Primary.Do("EVAL", "while true do end", 0) })
	s.wait()
	return s.Primary.Run("SCRIPT KILL")
}

func fill(s *scene) error {
	if err := s.Primary.Run("CONFIG SET maxmemory 1"); err != nil {
		return err
	}
	s.wait()
	return s.Primary.Run("CONFIG SET maxmemory 0")
}

func command(line string) func(*scene) error {
	return func(s *scene) error { return s.Primary.Run(line) }
}

func revoke(s *scene) error {
	if err := s.Primary.Run("ACL SETUSER default -eval -evalsha"); err != nil {
		return err
	}
	s.wait()
	return s.Primary.Run("ACL SETUSER default +eval +evalsha")
}

// rotate gives the user another password for a while, and cuts the connections that know the old one.
func rotate(s *scene) error {
	client := s.Primary.Admin()
	defer client.Close()
	ctx, admin := context.Background(), client.Conn() // which stays logged in
	defer admin.Close()
	if err := admin.Do(ctx, "ACL", "SETUSER", "default", "resetpass", ">other").Err(); err != nil {
		return err
	}
	if err := s.each((*faultproxy.Proxy).Cut); err != nil {
		return err
	}
	s.wait()
	return admin.Do(ctx, "ACL", "SETUSER", "default", "nopass").Err()
}

func step(ahead time.Duration) func(*scene) error {
	return func(s *scene) error { return s.SetClock(ahead) }
}

func mistrust(s *scene) error {
	if err := s.SetCertificate(false); err != nil {
		return err
	}
	if err := s.each((*faultproxy.Proxy).Cut); err != nil {
		return err
	}
	s.wait()
	return s.SetCertificate(true)
}
