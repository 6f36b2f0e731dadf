// Package pricefile reads the price files of LiteLLM, genai-prices and models.dev. Its types are
// those of package llm, where their doc comments are.
package pricefile

import (
	"errors"
	"fmt"
	"maps"
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
	Name     string            // by which only this entry goes, such as xai/grok-4
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
	switch formatOf(root) {
	case liteLLM:
		r.liteLLM(root.(map[string]any))
	case genAI:
		r.genAI(root.([]any))
	case modelsDev:
		r.modelsDev(root.(map[string]any))
	default:
		return File{}, errors.New("the file is none of LiteLLM, genai-prices or models.dev")
	}
	slices.Sort(r.file.Unread)
	return r.file, nil
}

type format uint8

const (
	liteLLM format = iota + 1
	genAI
	modelsDev
)

// formatOf tells the formats apart by where they have their models.
func formatOf(root any) format {
	if list, ok := root.([]any); ok {
		if len(list) > 0 {
			if _, ok := mapping(list[0])["models"].([]any); ok {
				return genAI
			}
		}
		return 0
	}
	top := mapping(root)
	for _, name := range slices.Sorted(maps.Keys(top)) {
		entry := mapping(top[name])
		if _, ok := entry["models"].(map[string]any); ok {
			return modelsDev
		}
		if _, ok := entry["litellm_provider"]; ok {
			return liteLLM
		}
	}
	return 0
}

// reader collects entries, and what was not understood.
type reader struct {
	file File
	now  time.Time
}

func (r *reader) unread(model, field, format string, args ...any) {
	r.file.Unread = append(r.file.Unread, model+": "+field+" "+fmt.Sprintf(format, args...))
}

// inclusive reports whether the thresholds of a provider are reached by equal prompts: xAI's are
// (pricing page, September 2026), all others are exceeded.
func inclusive(provider string) bool {
	return provider == "xai" || provider == "x-ai"
}

// from returns where a step begins whose threshold is that many tokens.
func from(threshold int64, provider string) int64 {
	if inclusive(provider) {
		return threshold
	}
	return threshold + 1
}
