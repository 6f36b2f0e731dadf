package faultproxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/lab/faults/faultproxy"
)

// echo returns the address of a server that sends back each line, and a channel with the lines that
// it has read.
func echo(t *testing.T) (addr string, read <-chan string) {
	t.Helper()
	listener := gatetest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	lines := make(chan string, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for in := bufio.NewReader(conn); ; {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					lines <- line
					_, _ = io.WriteString(conn, line)
				}
			}()
		}
	}()
	return listener.Addr().String(), lines
}

func start(t *testing.T) (p *faultproxy.Proxy, read <-chan string) {
	t.Helper()
	addr, read := echo(t)
	p = gatetest.Must(faultproxy.Listen(addr))(t)
	t.Cleanup(p.Close)
	return p, read
}

func dial(t *testing.T, p *faultproxy.Proxy) net.Conn {
	t.Helper()
	conn := gatetest.Must(net.Dial("tcp", p.Addr))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask sends a line and returns what comes back of it.
func ask(conn net.Conn, line string) (string, error) {
	if _, err := io.WriteString(conn, line); err != nil {
		return "", err
	}
	answer := make([]byte, len(line))
	n, err := io.ReadFull(conn, answer)
	return string(answer[:n]), err
}

func TestResetComesAfterTheRequest(t *testing.T) {
	p, read := start(t)
	p.Set(faultproxy.Fault{ResetReplies: 2})
	conn := dial(t, p)
	gatetest.Equal(t, gatetest.Must(ask(conn, "one\n"))(t), "one\n", "the first reply")
	if got, err := ask(conn, "two\n"); got != "" || err == nil {
		t.Errorf("the second reply is %q, %v", got, err)
	}
	gatetest.Equal(t, <-read+<-read, "one\n"+"two\n", "the server has read")
}

func TestHeldBytesArriveWhenTheFaultEnds(t *testing.T) {
	p, read := start(t)
	conn := dial(t, p)
	p.Set(faultproxy.Fault{Hold: true})
	gatetest.Must(io.WriteString(conn, "late\n"))(t)
	select {
	case line := <-read:
		t.Errorf("%q has passed", line)
	default:
	}
	p.Set(faultproxy.Fault{})
	gatetest.Equal(t, <-read, "late\n", "the server has read")
}

func TestFrozenConnectionSwallowsAndANewOneWorks(t *testing.T) {
	p, read := start(t)
	old := dial(t, p)
	gatetest.Must(ask(old, "before\n"))(t)
	gatetest.Need(t, p.Freeze(), 1, "connections froze")
	gatetest.Must(io.WriteString(old, "swallowed\n"))(t)
	gatetest.Equal(t, gatetest.Must(ask(dial(t, p), "after\n"))(t), "after\n", "a new connection has the reply")
	gatetest.Equal(t, <-read+<-read, "before\n"+"after\n", "the server has read")
}

func TestCutReplyStopsHalfway(t *testing.T) {
	p, _ := start(t)
	p.Set(faultproxy.Fault{CutReplies: 1})
	conn := dial(t, p)
	gatetest.Must(io.WriteString(conn, "12345678"+"\n"+"12345678\n"))(t)
	half := make([]byte, 4)
	gatetest.Must(io.ReadFull(conn, half))(t)
	gatetest.Equal(t, string(half), "1234", "the reply begins")
}

func TestRefusedConnectionIsReset(t *testing.T) {
	p, _ := start(t)
	p.Set(faultproxy.Fault{Refuse: true})
	conn, err := net.Dial("tcp", p.Addr)
	if err != nil {
		return // the reset came before the greeting had ended
	}
	defer conn.Close()
	if got, err := ask(conn, "hello\n"); got != "" || err == nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestNetworkKeepsAddresses(t *testing.T) {
	addr, _ := echo(t)
	var n faultproxy.Network
	defer n.Close()
	n.Set(faultproxy.Fault{Refuse: true}, addr)
	_, err := n.Dial(t.Context(), "tcp", addr)
	gatetest.Is(t, err, syscall.ECONNREFUSED, "refused")
	n.Set(faultproxy.Fault{}, addr)
	conn := gatetest.Must(n.Dial(context.Background(), "tcp", addr))(t)
	defer conn.Close()
	gatetest.Equal(t, gatetest.Must(ask(conn, "hello\n"))(t), "hello\n", "the reply")
	if links := n.Links(); len(links) != 1 || links[0].Open() != 1 {
		t.Errorf("links: %v", links)
	}
}
