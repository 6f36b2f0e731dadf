package lab

import (
	"fmt"
	"strconv"
	"strings"
)

const slots = 16384

func (l *Lab) startCluster() error {
	for i := range 4 {
		s, err := l.startNode()
		if err != nil {
			return err
		}
		if i == 3 {
			l.Replica = s
			continue
		}
		// Nodes with equal epochs would first negotiate new ones, and a node takes one only before it
		// has met another.
		first, end := i*slots/3, (i+1)*slots/3
		err = s.Run(
			fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", first, end-1),
			fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+1),
		)
		if err != nil {
			return err
		}
	}
	l.Primary, l.Other = l.servers[0], l.servers[1]
	for _, s := range l.servers {
		for _, other := range l.servers {
			if s == other {
				continue
			}
			if err := s.Run(fmt.Sprintf("CLUSTER MEET 127.0.0.1 %d %d", other.port, other.bus)); err != nil {
				return err
			}
		}
	}
	if err := await(l.allMet); err != nil {
		return err
	}
	id, err := l.Primary.id()
	if err != nil {
		return err
	}
	if err := await(func() error { return l.Replica.Run("CLUSTER REPLICATE " + id) }); err != nil {
		return err
	}
	if err := await(l.healthy); err != nil {
		return err
	}
	return l.findOutermost()
}

func (l *Lab) startNode() (*Server, error) {
	bus, err := freePort()
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
		"--cluster-port", strconv.Itoa(bus), "--cluster-announce-ip", "127.0.0.1",
		"--cluster-node-timeout", strconv.Itoa(int(PeersNotice.Milliseconds())),
		"--cluster-replica-validity-factor", "0", "--cluster-require-full-coverage", "no",
	}, l.Args...)
	s, err := l.start(args, nil)
	if err == nil {
		s.bus = bus
	}
	return s, err
}

func (l *Lab) allMet() error {
	for _, s := range l.servers {
		if err := s.expectCluster("cluster_known_nodes", "4"); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) healthy() error {
	for _, s := range l.servers {
		if err := s.expectCluster("cluster_state", "ok"); err != nil {
			return err
		}
		if err := s.expectCluster("cluster_slots_ok", strconv.Itoa(slots)); err != nil {
			return err
		}
	}
	return l.Replica.expect("master_link_status", "up")
}

// Serves waits until Primary has been back in its cluster for long enough to serve keys.
func (l *Lab) Serves() error {
	if l.Topology != Cluster {
		return nil
	}
	return await(func() error { return l.Primary.expectCluster("cluster_state", "ok") })
}

// findOutermost finds a part of a key whose slot Primary owns.
func (l *Lab) findOutermost() error {
	for i := range 100 {
		name := "acme" + strconv.Itoa(i)
		slot, err := l.Primary.Do("CLUSTER", "KEYSLOT", name)
		if err != nil {
			return err
		}
		if n, ok := slot.(int64); ok && n < slots/3 {
			l.Outermost = name
			return nil
		}
	}
	return fmt.Errorf("no key belongs to %s", l.Primary.Addr)
}

// MoveSlot moves the slot of Outermost from one master to another, key by key, as redis-cli does.
func (l *Lab) MoveSlot(from, to *Server) error {
	slot, err := from.Do("CLUSTER", "KEYSLOT", l.Outermost)
	if err != nil {
		return err
	}
	source, err := from.id()
	if err != nil {
		return err
	}
	target, err := to.id()
	if err != nil {
		return err
	}
	if err := to.Run(fmt.Sprintf("CLUSTER SETSLOT %v IMPORTING %s", slot, source)); err != nil {
		return err
	}
	if err := from.Run(fmt.Sprintf("CLUSTER SETSLOT %v MIGRATING %s", slot, target)); err != nil {
		return err
	}
	for {
		v, err := from.Do("CLUSTER", "GETKEYSINSLOT", slot, 20)
		if err != nil {
			return err
		}
		keys, ok := v.([]any)
		if !ok {
			return fmt.Errorf("GETKEYSINSLOT: %w", errAnswer)
		}
		if len(keys) == 0 {
			break
		}
		move := append([]any{"MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS"}, keys...)
		if _, err := from.Do(move...); err != nil {
			return fmt.Errorf("MIGRATE: %w", err)
		}
	}
	done := fmt.Sprintf("CLUSTER SETSLOT %v NODE %s", slot, target)
	if err := to.Run(done); err != nil {
		return err
	}
	return from.Run(done)
}

func (s *Server) id() (string, error) {
	v, err := s.Do("CLUSTER", "MYID")
	return fmt.Sprint(v), err
}

func (s *Server) expectCluster(field, want string) error {
	v, err := s.Do("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	if !strings.Contains(fmt.Sprint(v), field+":"+want+"\r\n") {
		return fmt.Errorf("%s of %s is not %s", field, s.Addr, want)
	}
	return nil
}
