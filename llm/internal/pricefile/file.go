// Package pricefile reads the price files of LiteLLM, genai-prices and models.dev. Its types are
// those of package llm, where their doc comments are.
package pricefile

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// The kinds of tokens that have prices of their own.
const (
	Input = iota
	CacheRead
	CacheWrite
	CacheWriteLong
	AudioIn
	ImageIn
	Output
	AudioOut
	ImageOut
	Reasoning
	kinds
)

// Price, Step and Model are what package llm says of its Price, Step, Tariff and Model. A Price is
// by kind.
type Price [kinds]int64

type Step struct {
	Label string
	From  int64
	Price Price
}

type Model struct {
	Price          Price
	Steps          []Step
	Units, Factors map[string]int64
	MaxOutput      int64
}

// free is a price of nothing.
const free = -1

// Entry is a model of a file.
type Entry struct {
	Provider string
	Name     string            // of its own, such as xai/grok-4
	Alias    string            // by which entries of other providers may go too, or empty
	Match    func(string) bool // reports whether a lower-case name is another alias; nil has none
	Model    Model
}

// File is what was read.
type File struct {
	Entries []Entry
	// Unread is what was not understood: the model, the field and why.
	Unread []string
}

// Max is the largest size of a file in bytes.
const Max = 16 << 20

// Parse reads the text of a file. Prices that begin at a date hold from that day on. It returns an
// error if the text is in none of the formats.
func Parse(text []byte, now time.Time) (File, error) {
	if len(text) > Max {
		return File{}, fmt.Errorf("the file has more than %d bytes", Max)
	}
	root, err := parseTree(text)
	if err != nil {
		return File{}, err
	}
	r := &reader{now: now}
	list, _ := root.([]any)
	if len(list) > 0 && hasModels[[]any](list[0]) {
		r.genAI(list)
	} else if top := mapping(root); hasAny(top, hasModels[map[string]any]) {
		r.modelsDev(top)
	} else if hasAny(top, func(entry any) bool { return mapping(entry)["litellm_provider"] != nil }) {
		r.liteLLM(top)
	} else {
		return File{}, errors.New("the file is none of LiteLLM, genai-prices or models.dev")
	}
	slices.Sort(r.file.Unread)
	return r.file, nil
}

// hasModels reports whether a provider has models of a type.
func hasModels[T any](provider any) bool {
	_, ok := mapping(provider)["models"].(T)
	return ok
}

func hasAny(top map[string]any, is func(any) bool) bool {
	for _, entry := range top {
		if is(entry) {
			return true
		}
	}
	return false
}

// reader collects entries, and what was not understood.
type reader struct {
	file File
	now  time.Time
}

func (r *reader) unread(model, field, format string, args ...any) {
	r.file.Unread = append(r.file.Unread, model+": "+field+" "+fmt.Sprintf(format, args...))
}

// from returns where a step begins whose threshold is that many tokens. Equal prompts reach those
// of xAI (pricing page, September 2026), and longer ones all others.
func from(threshold int64, provider string) int64 {
	if provider == "xai" || provider == "x-ai" {
		return threshold
	}
	return threshold + 1
}
