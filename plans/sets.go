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
		set, err = readSet(context.Background(), &s.file)
	}
	s.current.Store(set)
	cfg.Set = nil // it need not stay in memory
	return s, err
}

// look reads the file again if it has changed.
func (s *sets) look(ctx context.Context) {
	text, changed, err := s.file.Stands(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && err.Error() != s.trouble:
		s.trouble = err.Error()
		s.cfg.tell(ctx, Event{Op: OpReload, Err: fmt.Errorf("plans: %w", err)})
	case err == nil:
		s.trouble = ""
	}
	if changed {
		set, err := parseSet(s.cfg.File+": ", text)
		s.reload(ctx, set, err)
	}
}

// reload makes a Set that was read hold, unless it is bad.
func (s *sets) reload(ctx context.Context, set *Set, err error) {
	s.loading.Lock()
	defer s.loading.Unlock()
	if err == nil {
		err = s.checkNames(set)
	}
	if err == nil {
		s.current.Store(set)
	}
	s.cfg.tell(ctx, Event{Op: OpReload, Err: err})
}

// replace makes another Set hold.
func (s *sets) replace(set *Set) error {
	if set == nil || set.standard == nil {
		return errors.New(
			"plans: Replace: the Set is nil or zero: NewSet, ParseSet or ReadSet must make it")
	}
	s.loading.Lock()
	defer s.loading.Unlock()
	if err := s.checkNames(set); err != nil {
		return err
	}
	s.current.Store(set)
	s.cfg.tell(context.Background(), Event{Op: OpReload})
	return nil
}

// checkNames returns an error for names that a Set must not have, or lacks. The caller holds loading.
func (s *sets) checkNames(set *Set) error {
	if s.fixed == nil {
		return nil
	}
	return s.fixed.check(set)
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
