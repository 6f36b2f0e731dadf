package plans

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/internal/watch"
)

// sets keeps the Set that holds, and follows its file.
type sets struct {
	cfg     *Config
	current atomic.Pointer[Set]

	looking sync.Mutex // held by look from the end of its read on, for Close
	loading sync.Mutex // held while the Set is replaced
	fixed   *names     // that every Set must have, or nil
	file    watch.File // of look, which one goroutine calls
	trouble string     // error of file that was last told
}

// newSets returns sets of the configuration's Set or file.
func newSets(cfg *Config) (*sets, error) {
	s := &sets{cfg: cfg}
	set, err := cfg.Set, error(nil)
	if cfg.File != "" {
		s.file = watch.File{Path: cfg.File, Max: maxFile}
		set, err = readSet(&s.file)
	}
	s.current.Store(set)
	cfg.Set = nil // it need not stay in memory
	return s, err
}

// look reads the file again if it has changed.
func (s *sets) look(ctx context.Context) {
	text, changed, err := s.file.Stands()
	s.looking.Lock()
	defer s.looking.Unlock()
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && err.Error() != s.trouble:
		s.trouble = err.Error()
		s.cfg.tell(ctx, Event{Op: OpReload, Err: fmt.Errorf("plans: %w", err)})
	case err == nil:
		s.trouble = ""
	}
	if !changed {
		return
	}
	set, err := parseSet(s.cfg.File+": ", text)
	if err == nil {
		err = s.hold(ctx, set)
	}
	if err != nil {
		s.cfg.tell(ctx, Event{Op: OpReload, Err: err})
	}
}

// hold makes a Set hold, unless it has names that it must not have, or lacks one.
func (s *sets) hold(ctx context.Context, set *Set) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	if s.fixed != nil {
		if err := s.fixed.check(set); err != nil {
			return err
		}
	}
	s.current.Store(set)
	s.cfg.tell(ctx, Event{Op: OpReload})
	return nil
}

// replace makes another Set hold.
func (s *sets) replace(set *Set) error {
	if set == nil || set.standard == nil {
		return errors.New(
			"plans: Replace: the Set is nil or zero: NewSet, ParseSet or ReadSet must make it")
	}
	return s.hold(context.Background(), set)
}

// unknown returns an error for each name of an override that no plan may have, once names are fixed.
func (s *sets) unknown(o Override) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	if s.fixed == nil {
		return nil
	}
	return s.fixed.unknown("override.", o.own())
}
