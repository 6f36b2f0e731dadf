package faultproxy_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/headgate/headgate/lab/faults/faultproxy"
)

// echo returns the address of a server that sends back each line, and a channel with the lines that
// it has read.
func echo(t *testing.T) (addr string, read <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	p, err := faultproxy.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, read
}

func dial(t *testing.T, p *faultproxy.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
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
	if got, err := ask(conn, "one\n"); got != "one\n" || err != nil {
		t.Fatal(got, err)
	}
	if got, err := ask(conn, "two\n"); got != "" || err == nil {
		t.Errorf("the second reply is %q, %v", got, err)
	}
	if first, second := <-read, <-read; first != "one\n" || second != "two\n" {
		t.Errorf("the server has read %q and %q", first, second)
	}
}

func TestHeldBytesArriveWhenTheFaultEnds(t *testing.T) {
	p, read := start(t)
	conn := dial(t, p)
	p.Set(faultproxy.Fault{Hold: true})
	if _, err := io.WriteString(conn, "late\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case line := <-read:
		t.Errorf("%q has passed", line)
	default:
	}
	p.Set(faultproxy.Fault{})
	if line := <-read; line != "late\n" {
		t.Errorf("the server has read %q", line)
	}
}

func TestFrozenConnectionSwallowsAndANewOneWorks(t *testing.T) {
	p, read := start(t)
	old := dial(t, p)
	if _, err := ask(old, "before\n"); err != nil {
		t.Fatal(err)
	}
	if n := p.Freeze(); n != 1 {
		t.Fatalf("%d connections froze", n)
	}
	if _, err := io.WriteString(old, "swallowed\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := ask(dial(t, p), "after\n"); got != "after\n" || err != nil {
		t.Fatal(got, err)
	}
	if first, second := <-read, <-read; first != "before\n" || second != "after\n" {
		t.Errorf("the server has read %q and %q", first, second)
	}
}

func TestCutReplyStopsHalfway(t *testing.T) {
	p, _ := start(t)
	p.Set(faultproxy.Fault{CutReplies: 1})
	conn := dial(t, p)
	if _, err := io.WriteString(conn, "12345678"+"\n"+"12345678\n"); err != nil {
		t.Fatal(err)
	}
	half := make([]byte, 4)
	if _, err := io.ReadFull(conn, half); err != nil || string(half) != "1234" {
		t.Errorf("%q, %v", half, err)
	}
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
	if _, err := n.Dial(t.Context(), "tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refused: %v", err)
	}
	n.Set(faultproxy.Fault{}, addr)
	conn, err := n.Dial(context.Background(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := ask(conn, "hello\n"); got != "hello\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if links := n.Links(); len(links) != 1 || links[0].Open() != 1 {
		t.Errorf("links: %v", links)
	}
}
