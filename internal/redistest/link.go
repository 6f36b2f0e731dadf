package redistest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Link is a TCP connection to a server that a test breaks or slows down. Its methods may be called from any
// goroutine.
type Link struct {
	Addr string // of the near end

	far   string
	delay atomic.Int64 // nanoseconds, each way
	mu    sync.Mutex
	pipes map[*pipe]struct{}
	tasks sync.WaitGroup
}

// pipe is one connection over the link.
type pipe struct {
	near, far net.Conn
	frozen    atomic.Bool
}

// StartLink returns a link to an address. It ends with the test.
func StartLink(t testing.TB, addr string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{Addr: listener.Addr().String(), far: addr, pipes: make(map[*pipe]struct{})}
	l.tasks.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			l.open(near)
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.Cut()
		l.tasks.Wait()
	})
	return l
}

func (l *Link) open(near net.Conn) {
	far, err := net.Dial("tcp", l.far)
	if err != nil {
		_ = near.Close()
		return
	}
	p := &pipe{near: near, far: far}
	l.mu.Lock()
	l.pipes[p] = struct{}{}
	l.mu.Unlock()
	l.tasks.Go(func() { l.carry(p, far, near) })
	l.tasks.Go(func() { l.carry(p, near, far) })
}

// carry copies what one end sends to the other, later.
func (l *Link) carry(p *pipe, to, from net.Conn) {
	type packet struct {
		due  time.Time
		data []byte
	}
	line := make(chan packet, 1024)
	l.tasks.Go(func() {
		for m := range line {
			time.Sleep(time.Until(m.due))
			if !p.frozen.Load() {
				_, _ = to.Write(m.data)
			}
		}
		_ = to.Close()
	})
	for {
		data := make([]byte, 16<<10)
		n, err := from.Read(data)
		if err != nil {
			break
		}
		line <- packet{time.Now().Add(time.Duration(l.delay.Load())), data[:n]}
	}
	close(line)
	l.mu.Lock()
	delete(l.pipes, p)
	l.mu.Unlock()
}

// Freeze makes every open connection half-open: it swallows what either end sends, for good. New
// connections work. It returns how many it froze.
func (l *Link) Freeze() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.pipes {
		p.frozen.Store(true)
	}
	return len(l.pipes)
}

// Cut closes every open connection.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.pipes {
		_ = p.near.Close()
		_ = p.far.Close()
	}
}

// Delay sets the round-trip time.
func (l *Link) Delay(roundTrip time.Duration) { l.delay.Store(int64(roundTrip / 2)) }
