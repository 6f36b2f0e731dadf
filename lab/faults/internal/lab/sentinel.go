package lab

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/headgate/headgate/lab/faults/faultproxy"
)

const primaryName = "primary"

func (l *Lab) startSentinel() (err error) {
	if l.Primary, err = l.start(l.Args, nil); err != nil {
		return err
	}
	// The replica and the sentinels know the primary by a proxy, so that it can be cut off from them
	// alone.
	if l.peers, err = faultproxy.Listen(l.Primary.Addr); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(l.peers.Addr)
	if err != nil {
		return err
	}
	args := append([]string{"--replicaof", "127.0.0.1 " + port}, l.Args...)
	if l.Replica, err = l.start(args, nil); err != nil {
		return err
	}
	if err := await(func() error { return l.Replica.expect("master_link_status", "up") }); err != nil {
		return err
	}
	for i := range 3 {
		s, err := newServer(filepath.Join(l.dir, "sentinel"+strconv.Itoa(i)))
		if err != nil {
			return err
		}
		file := filepath.Join(s.dir, "sentinel.conf")
		err = os.WriteFile(file, fmt.Appendf(nil, `sentinel monitor %s 127.0.0.1 %s 2
sentinel down-after-milliseconds %[1]s %[3]d
sentinel failover-timeout %[1]s 6000
`, primaryName, port, PeersNotice.Milliseconds()), 0o600)
		if err != nil {
			return err
		}
		s.args = []string{file, "--sentinel", "--bind", "127.0.0.1", "--port", strconv.Itoa(s.port)}
		l.sentinels = append(l.sentinels, s)
		if err := s.Launch(); err != nil {
			return err
		}
	}
	return await(l.watched)
}

// watched returns nil if every sentinel knows the replica and the other sentinels.
func (l *Lab) watched() error {
	for _, s := range l.sentinels {
		v, err := s.Do("SENTINEL", "MASTER", primaryName)
		if err != nil {
			return err
		}
		state, ok := v.(map[any]any)
		if !ok {
			return fmt.Errorf("SENTINEL MASTER: %w", errAnswer)
		}
		if state["num-slaves"] != "1" || state["num-other-sentinels"] != "2" {
			return fmt.Errorf("%s knows %v replicas and %v other sentinels", s.Addr,
				state["num-slaves"], state["num-other-sentinels"])
		}
	}
	return nil
}

// Isolate cuts Primary off from its replica and the sentinels, which then promote the replica, or
// heals that.
func (l *Lab) Isolate(on bool) { l.peers.Set(faultproxy.Fault{Hold: on}) }

// Failover has the replica take over while all is well, and waits until clients are told. What the old
// primary is told until then is lost.
func (l *Lab) Failover() error {
	if l.Topology == Cluster {
		if err := l.Replica.Run("CLUSTER FAILOVER"); err != nil {
			return err
		}
		return l.Promoted()
	}
	if err := l.sentinels[0].Run("SENTINEL FAILOVER " + primaryName); err != nil {
		return err
	}
	return await(l.announced)
}

// announced returns nil if every sentinel names the replica as the primary.
func (l *Lab) announced() error {
	_, port, err := net.SplitHostPort(l.Replica.Addr)
	if err != nil {
		return err
	}
	for _, s := range l.sentinels {
		addr, err := s.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", primaryName)
		if err != nil {
			return err
		}
		if at, ok := addr.([]any); !ok || len(at) != 2 || at[1] != port {
			return fmt.Errorf("%s names %v as the primary", s.Addr, addr)
		}
	}
	return nil
}

// Promoted waits until the replica is a primary.
func (l *Lab) Promoted() error {
	return await(func() error { return l.Replica.expect("role", "master") })
}
