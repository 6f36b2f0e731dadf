package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/llm"
)

//go:embed testdata
var testdata embed.FS

// transcripts is an upstream that replays recorded responses, whatever the request asks. It is the
// http.RoundTripper of a proxy, so that no network is needed. The delay comes before each event.
type transcripts struct{ delay time.Duration }

// RoundTrip implements http.RoundTripper.
func (t transcripts) RoundTrip(r *http.Request) (*http.Response, error) {
	file, err := transcriptFor(r)
	if err != nil {
		return nil, err
	}
	text, err := testdata.ReadFile("testdata/" + file)
	if err != nil {
		return nil, err
	}
	response := &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/json"}},
		Body:          io.NopCloser(bytes.NewReader(text)),
		ContentLength: int64(len(text)),
		Request:       r,
	}
	if strings.HasSuffix(file, ".sse") {
		response.Header.Set("Content-Type", "text/event-stream")
		response.ContentLength = -1
		response.Body = io.NopCloser(&replay{
			ctx: r.Context(), events: bytes.SplitAfter(text, []byte("\n\n")), delay: t.delay,
		})
	}
	return response, nil
}

// transcriptFor returns the file that answers a request, whose body it reads.
func transcriptFor(r *http.Request) (string, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	format, ok := llm.FormatOf(r)
	if !ok {
		return "models.json", nil
	}
	var ask struct {
		Stream bool `json:"stream"`
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		return "", fmt.Errorf("transcripts: %w", err)
	}
	name := map[llm.Format]string{
		llm.FormatOpenAIChat: "chat", llm.FormatOpenAIResponses: "responses", llm.FormatAnthropicMessages: "messages",
	}[format]
	if ask.Stream {
		return name + ".sse", nil
	}
	return name + ".json", nil
}

// replay reads events one at a time, each after a delay.
type replay struct {
	ctx    context.Context
	events [][]byte
	rest   []byte // of the present event
	delay  time.Duration
}

// Read implements io.Reader.
func (p *replay) Read(to []byte) (int, error) {
	for len(p.rest) == 0 {
		if len(p.events) == 0 {
			return 0, io.EOF
		}
		timer := time.NewTimer(p.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.ctx.Done():
			return 0, p.ctx.Err()
		}
		p.rest, p.events = p.events[0], p.events[1:]
	}
	n := copy(to, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}
