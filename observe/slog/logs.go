package sloggate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/headgate/headgate/core"
)

// Config configures Logs. The zero value is right for most programs.
type Config struct {
	// Logger is where lines go. Nil means slog.Default, as it is when New is called.
	Logger *slog.Logger
	// Every is how long from the first line on no line about the same policy and key, semaphore or error
	// is repeated. Repetitions are counted meanwhile, and told by one line each afterwards, with the next
	// event or by Flush. Then the next line begins another such time. It is between 1 s and 1 h. Zero
	// means a minute.
	Every time.Duration
	// MaxKeys bounds how many lines of one message are written and remembered in that time, such as
	// denials of different keys. What is beyond is counted together. Zero means 100.
	MaxKeys int
	// Key returns how a key is written. Nil writes the first 16 digits of its SHA-256, which hides no
	// key that can be guessed, such as an address. core.Key.String writes keys as they are.
	Key func(core.Key) string
	// Clock returns the time. Nil means time.Now.
	Clock func() time.Time
}

// Logs writes a log of events. It is safe for concurrent use.
type Logs struct {
	cfg     Config
	sampler sampler
}

const maxKeys = 1_000_000

// New returns Logs, or every fault of the configuration at once.
func New(cfg Config) (*Logs, error) {
	var errs []error
	if cfg.Every != 0 && (cfg.Every < time.Second || cfg.Every > time.Hour) {
		errs = append(errs, fmt.Errorf(
			"sloggate: Config.Every is %v: it must be between 1s and 1h", cfg.Every))
	}
	if cfg.MaxKeys < 0 || cfg.MaxKeys > maxKeys {
		errs = append(errs, fmt.Errorf(
			"sloggate: Config.MaxKeys is %d: it must be between 1 and %d", cfg.MaxKeys, maxKeys))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Key == nil {
		cfg.Key = hashed
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	l := &Logs{cfg: cfg}
	l.sampler.init(cmp.Or(cfg.Every, time.Minute), cmp.Or(cfg.MaxKeys, 100))
	return l, nil
}

func hashed(key core.Key) string {
	sum := sha256.Sum256([]byte(key.String()))
	return hex.EncodeToString(sum[:8])
}

// Observe writes what is to be said of an event. It is for core.Config.Observe, and for the Observe
// of the other packages' configurations.
func (l *Logs) Observe(ctx context.Context, e core.Event) {
	if l.sampler.pending.Load() {
		l.write(ctx, l.sampler.due(l.cfg.Clock(), false))
	}
	l.say(ctx, e)
}

// Flush tells the repetitions that no line has told yet. Call it before the program ends.
func (l *Logs) Flush(ctx context.Context) {
	l.write(ctx, l.sampler.due(l.cfg.Clock(), true))
}

func (l *Logs) write(ctx context.Context, repeated []repetition) {
	for _, r := range repeated {
		attrs := make([]slog.Attr, 0, 4)
		if r.name != "" {
			attrs = append(attrs, slog.String(r.line.kind, r.name))
		}
		if r.key != "" {
			attrs = append(attrs, slog.String("key", r.key))
		}
		attrs = append(attrs, slog.Int64("times", r.times))
		l.cfg.Logger.LogAttrs(ctx, r.line.level, r.line.message+" again", attrs...)
	}
}
