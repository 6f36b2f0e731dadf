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
	file    watch.File
	trouble string // error of file that was last told
}

// newSets returns sets of the configuration's Set or file.
func newSets(cfg *Config) (*sets, error) {
	s := &sets{cfg: cfg}
	set, err := cfg.Set, error(nil)
	if cfg.File != "" {
		s.file = watch.File{Path: cfg.File, Max: maxFile}
		set, err = readSet(&s.file)
	}
	if err == nil {
		err = cfg.checkNames(set)
	}
	s.current.Store(set)
	cfg.Set = nil // it need not stay in memory
	return s, err
}

// look reads the file again if it has changed.
func (s *sets) look(ctx context.Context) {
	s.loading.Lock()
	defer s.loading.Unlock()
	text, changed, err := s.file.Stands()
	switch {
	case err != nil && err.Error() != s.trouble:
		s.trouble = err.Error()
		s.cfg.tell(ctx, Event{Op: OpReload, Err: fmt.Errorf("plans: %w", err)})
	case err == nil:
		s.trouble = ""
	}
	if changed {
		set, err := parseSet(s.cfg.File+": ", text)
		_ = s.reload(ctx, set, err) // the event tells
	}
}

// readNow reads the file now.
func (s *sets) readNow() error {
	if s.cfg.File == "" {
		return errors.New("plans: Reload: Config.File is empty")
	}
	s.loading.Lock()
	defer s.loading.Unlock()
	set, err := readSet(&s.file)
	return s.reload(context.Background(), set, err)
}

// reload makes a Set that was read hold, unless it is bad. The caller holds loading.
func (s *sets) reload(ctx context.Context, set *Set, err error) error {
	if err == nil {
		err = s.cfg.checkNames(set)
	}
	if err == nil {
		s.current.Store(set)
	}
	s.cfg.tell(ctx, Event{Op: OpReload, Err: err})
	return err
}

// replace makes another Set hold.
func (s *sets) replace(set *Set) error {
	if set == nil || set.standard == nil {
		return errors.New(
			"plans: Replace: the Set is nil or zero: NewSet, ParseSet or ReadSet must make it")
	}
	if err := s.cfg.checkNames(set); err != nil {
		return err
	}
	s.loading.Lock()
	defer s.loading.Unlock()
	s.current.Store(set)
	s.cfg.tell(context.Background(), Event{Op: OpReload})
	return nil
}
