package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/inspect"
)

// progress draws how much of the logs has been read, if a person watches. It is drawn by the
// goroutine that decides.
type progress struct {
	out      io.Writer // nil if nobody watches
	total    int64     // bytes; 0 if it is not known
	read     int64
	requests int64
	began    time.Time
	next     time.Time
	drawn    bool
}

func newProgress(t terminal, logs []string) *progress {
	p := &progress{began: time.Now()}
	p.next = p.began.Add(drawEvery)
	if isTerminal(t.err) {
		p.out = t.err
	}
	for _, log := range logs {
		info, err := os.Stat(log)
		if err != nil || !info.Mode().IsRegular() {
			p.total = 0
			break
		}
		p.total += info.Size()
	}
	return p
}

// reader counts what is read.
func (p *progress) reader(r io.Reader) io.Reader { return &countingReader{r, &p.read} }

type countingReader struct {
	io.Reader
	n *int64
}

func (r *countingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	*r.n += int64(n)
	return n, err
}

const (
	drawEvery = 200 * time.Millisecond
	lookEvery = 1024 // requests
)

// request counts a request, and draws now and then.
func (p *progress) request() {
	p.requests++
	if p.out == nil || p.requests%lookEvery != 0 {
		return
	}
	if now := time.Now(); now.After(p.next) {
		p.next = now.Add(drawEvery)
		p.draw(now.Sub(p.began))
	}
}

func (p *progress) draw(took time.Duration) {
	const width = 30
	bar := ""
	if p.total > 0 {
		done := min(1, float64(p.read)/float64(p.total))
		full := int(done * width)
		bar = fmt.Sprintf(
			"[%s%s] %3.0f %%  ", strings.Repeat("#", full), strings.Repeat(".", width-full), 100*done,
		)
	}
	fmt.Fprintf(p.out, "\r\x1b[K%s%s requests, %s a second", bar, inspect.Number(p.requests),
		inspect.Number(int64(float64(p.requests)/took.Seconds())))
	p.drawn = true
}

// clear removes what was drawn.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
