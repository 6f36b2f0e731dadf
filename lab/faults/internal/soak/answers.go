package soak

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
)

// answers counts what callers were told.
type answers struct {
	mu     sync.Mutex
	counts map[string]int
	wrong  map[string]error // the first of each kind
}

// note counts an answer, which is wrong if it is an error that is not allowed.
func (a *answers) note(name string, may func(error) bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.counts[name]++
		return
	}
	a.counts[name+", without"]++
	if !may(err) && a.wrong[name] == nil {
		a.wrong[name] = fmt.Errorf("%s: %w", name, err)
	}
}

func (a *answers) err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Join(slices.Collect(maps.Values(a.wrong))...)
}

func (a *answers) write(out io.Writer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(a.counts)) {
		fmt.Fprintf(out, "%9d %s\n", a.counts[name], name)
	}
}
