package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// model stands for a language model behind OpenAI's API of chat completions. It always gives the
// same answer.
type model struct {
	tokens int // length of an answer, unless the request wants less
	delay  time.Duration
}

var vocabulary = strings.Fields(`The headgate stands at the head of the canal and decides how
	much water enters. It opens a little in spring. The fields below take water in turn, each for an hour.
	No field runs dry because another one takes too much. If one gate breaks, the water goes to the next.`)

func word(i int) string { return vocabulary[i%len(vocabulary)] + " " }

type chatRequest struct {
	Model               string `json:"model"`
	Stream              bool   `json:"stream"`
	MaxTokens           *int   `json:"max_tokens"`
	MaxCompletionTokens *int   `json:"max_completion_tokens"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`
}

type choice struct {
	Index        int      `json:"index"`
	Message      *message `json:"message,omitempty"`
	Delta        *message `json:"delta,omitempty"`
	FinishReason *string  `json:"finish_reason"`
}

type message struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// ServeHTTP answers POST /v1/chat/completions. The guard has admitted the request, whose context
// ends with the client's connection and when the lease of its slot is lost.
func (m model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var ask chatRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&ask); err != nil {
		answer(w, http.StatusBadRequest, errorBody("The body is not the JSON of a chat completion.", "invalid_request_error", "invalid_json"))
		return
	}
	tokens, finish := m.tokens, "stop"
	for _, most := range []*int{ask.MaxTokens, ask.MaxCompletionTokens} {
		if most != nil && *most >= 0 && *most < tokens {
			tokens, finish = *most, "length"
		}
	}
	c := completion{ID: "chatcmpl-" + rand.Text(), Created: time.Now().Unix(), Model: ask.Model}
	spent := &usage{CompletionTokens: tokens, TotalTokens: tokens}
	if ask.Stream {
		c.Object = "chat.completion.chunk"
		if !ask.StreamOptions.IncludeUsage {
			spent = nil
		}
		m.stream(w, r, c, tokens, finish, spent)
		return
	}
	var text strings.Builder
	for i := range tokens {
		if !m.think(r.Context()) {
			answer(w, http.StatusServiceUnavailable, interruption(r.Context()))
			return
		}
		text.WriteString(word(i))
	}
	c.Object, c.Usage = "chat.completion", spent
	c.Choices = []choice{{Message: &message{Role: "assistant", Content: text.String()}, FinishReason: &finish}}
	answer(w, http.StatusOK, c)
}

func (m model) stream(w http.ResponseWriter, r *http.Request, c completion, tokens int, finish string, spent *usage) {
	to := newEvents(w)
	defer to.close()
	chunk := func(delta message, finish *string) error {
		c.Choices = []choice{{Delta: &delta, FinishReason: finish}}
		return to.sendJSON(c)
	}
	err := chunk(message{Role: "assistant"}, nil)
	for i := 0; i < tokens && err == nil; i++ {
		if !m.think(r.Context()) {
			_ = to.sendJSON(interruption(r.Context())) // the client may be gone
			return
		}
		err = chunk(message{Content: word(i)}, nil)
	}
	if err == nil {
		err = chunk(message{}, &finish)
	}
	if err == nil && spent != nil {
		c.Choices, c.Usage = []choice{}, spent
		err = to.sendJSON(c)
	}
	if err == nil {
		_ = to.send("[DONE]")
	}
}

// think waits for the delay of a token. It returns false if ctx has ended.
func (m model) think(ctx context.Context) bool {
	timer := time.NewTimer(m.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func errorBody(text, kind, code string) any {
	return map[string]any{"error": map[string]any{"message": text, "type": kind, "param": nil, "code": code}}
}

// interruption returns an error object that says why an answer is incomplete.
func interruption(ctx context.Context) any {
	if errors.Is(context.Cause(ctx), core.ErrLeaseLost) {
		return errorBody("The slot of this stream is lost.", "server_error", "slot_lost")
	}
	return errorBody("The stream was interrupted.", "server_error", "interrupted")
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
