package redistest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// process is a server program that this package runs. A restart keeps its port.
type process struct {
	path      string
	dir       string
	cluster   bool
	sentinel  string // configuration of a sentinel, otherwise empty
	extraArgs []string
	port      int
	busPort   int

	mu      sync.Mutex
	cmd     *exec.Cmd
	exited  chan struct{}
	logFrom int64
}

var errPortTaken = errors.New("the port is taken")

func (p *process) addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port))
}

// start runs the program on a free port and returns its name and version.
func (p *process) start() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for attempt := 1; ; attempt++ {
		var err error
		if p.port, p.busPort, err = freePorts(); err != nil {
			return "", err
		}
		// Another test binary may have taken the port since it was found free.
		name, err := p.launch()
		if attempt < 10 && errors.Is(err, errPortTaken) {
			continue
		}
		return name, err
	}
}

func (p *process) restart() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	deadline := time.Now().Add(answerTimeout)
	for {
		_, err := p.launch()
		if !errors.Is(err, errPortTaken) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
}

func (p *process) halt() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cmd.Process.Signal(sigStop); err != nil {
		return err
	}
	return awaitStopped(p.cmd.Process.Pid)
}

func (p *process) signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Signal(sig)
}

func (p *process) end() {
	if p.cmd == nil {
		return
	}
	// Both fail only if the process has exited.
	_ = p.cmd.Process.Signal(sigCont)
	_ = p.cmd.Process.Kill()
	<-p.exited
}

func (p *process) args() []string {
	if p.sentinel != "" {
		return []string{p.configPath(), "--sentinel", "--bind", "127.0.0.1", "--port", strconv.Itoa(p.port)}
	}
	args := []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(p.port),
		"--save", "", "--appendonly", "no", "--daemonize", "no",
	}
	if p.cluster {
		args = append(args,
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
			"--cluster-port", strconv.Itoa(p.busPort), "--cluster-announce-ip", "127.0.0.1")
	}
	return append(args, p.extraArgs...)
}

// launch runs the program on its port and waits until it answers.
func (p *process) launch() (string, error) {
	log, err := os.OpenFile(p.logPath(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	// The program keeps its own descriptor.
	defer func() { _ = log.Close() }()
	stat, err := log.Stat()
	if err != nil {
		return "", err
	}
	p.logFrom = stat.Size()
	if p.sentinel != "" { // a sentinel overwrites the file
		if err := os.WriteFile(p.configPath(), []byte(p.sentinel), 0o600); err != nil {
			return "", err
		}
	}

	cmd := exec.Command(p.path, p.args()...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	if err := cmd.Start(); err != nil {
		return "", err
	}
	exited := make(chan struct{})
	go func() {
		// The error of a killed server says nothing.
		_ = cmd.Wait()
		close(exited)
	}()
	p.cmd, p.exited = cmd, exited

	name, err := p.awaitAnswer()
	if err == nil {
		return name, nil
	}
	p.end()
	text := p.logText()
	if strings.Contains(text, "already in use") {
		err = errPortTaken
	}
	return "", fmt.Errorf("%w; its log ends:\n%s", err, tail(text, 20))
}

// awaitAnswer polls until the server answers and returns its name.
func (p *process) awaitAnswer() (string, error) {
	deadline := time.Now().Add(answerTimeout)
	last := errors.New("no answer yet")
	for time.Now().Before(deadline) {
		select {
		case <-p.exited:
			return "", fmt.Errorf("the process ended: %v", p.cmd.ProcessState)
		default:
		}
		name, err := p.probe()
		if err == nil {
			return name, nil
		}
		last = err
		time.Sleep(5 * time.Millisecond)
	}
	return "", fmt.Errorf("no answer at %s: %w", p.addr(), last)
}

func (p *process) probe() (string, error) {
	// A go-redis client backs off for a second after failed dials.
	conn, err := net.DialTimeout("tcp", p.addr(), time.Second)
	if err != nil {
		return "", err
	}
	_ = conn.Close()

	opt := (&Server{Addr: p.addr()}).options()
	opt.MaxRetries, opt.DialerRetries = -1, 1
	client := redis.NewClient(opt)
	defer func() { _ = client.Close() }()
	ctx := context.Background()
	if err := client.Ping(ctx).Err(); err != nil {
		return "", err
	}
	text, err := client.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	// If the port was taken, another server answers here while this one is about
	// to exit.
	info := parseInfo(text)
	if pid := strconv.Itoa(p.cmd.Process.Pid); info["process_id"] != pid {
		return "", fmt.Errorf("process %s answers instead of %s", info["process_id"], pid)
	}
	return programName(info), nil
}

func (p *process) configPath() string { return filepath.Join(p.dir, "sentinel.conf") }

func (p *process) logPath() string { return filepath.Join(p.dir, "log") }

// logText returns what the program wrote since its latest start.
func (p *process) logText() string {
	text, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	return string(text[min(p.logFrom, int64(len(text))):])
}

func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// freePorts returns two free loopback ports. They lie below the system's
// ephemeral range: otherwise an outgoing connection could occupy the port of a
// killed server before the server restarts.
func freePorts() (port, busPort int, err error) {
	const lowest, end = 10000, 32768
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for range 1000 {
		var l net.Listener
		candidate := lowest + rand.IntN(end-lowest)
		l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(candidate)))
		if err != nil {
			continue
		}
		if held = append(held, l); len(held) == 1 {
			port = candidate
			continue
		}
		return port, candidate, nil
	}
	return 0, 0, fmt.Errorf("no free port: %w", err)
}
