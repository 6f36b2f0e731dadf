package sloggate

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/bloom"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/series"
)

// say writes the lines of an event.
func (l *Logs) say(ctx context.Context, e core.Event) {
	switch e := e.(type) {
	case *core.DecisionEvent:
		l.decision(ctx, e)
	case *core.ReservationEvent:
		l.reservation(ctx, e)
	case *core.KeyEvent:
		l.change(ctx, e)
	case *core.ThresholdEvent:
		l.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "threshold reached",
			slog.String("policy", e.Policy.Name()), slog.String("key", l.cfg.Key(e.Key)),
			slog.Int("percent", e.Percent), slog.Int64("used", e.Used), slog.Int64("limit", e.Limit))
	case *core.ServerEvent:
		l.server(ctx, e)
	case *semaphore.AcquireEvent:
		l.acquire(ctx, e)
	case *semaphore.LeaseEvent:
		l.lease(ctx, e)
	case *bloom.Event:
		if e.Err != nil {
			l.fault(ctx, "filter failed", "filter", e.Filter.Name(), e.Err)
		}
	default:
		l.note(ctx, series.NoteOf(e))
	}
}

// note writes what a package above core says of its event. What may come with every request is
// sampled.
func (l *Logs) note(ctx context.Context, n series.Note) {
	switch {
	case n.Message == "":
	case n.Level == slog.LevelWarn && !n.Rare:
		l.sample(ctx, subject{line: line{n.Level, n.Message, ""}}, n.Attrs...)
	default:
		l.cfg.Logger.LogAttrs(ctx, n.Level, n.Message, n.Attrs...)
	}
}

// sample writes a line unless it was written lately.
func (l *Logs) sample(ctx context.Context, s subject, attrs ...slog.Attr) {
	l.sampleKey(ctx, s, core.Key{}, attrs...)
}

// sampleKey writes a line about a key unless it was written lately.
func (l *Logs) sampleKey(ctx context.Context, s subject, key core.Key, attrs ...slog.Attr) {
	if !l.cfg.Logger.Enabled(ctx, s.level) {
		return
	}
	s.path = key.String()
	shown, first := l.sampler.first(s, l.cfg.Clock(), func() string { return l.shown(s, key) })
	if !first {
		return
	}
	all := make([]slog.Attr, 0, len(attrs)+2)
	if s.name != "" {
		all = append(all, slog.String(s.kind, s.name))
	}
	if shown != "" {
		all = append(all, slog.String("key", shown))
	}
	l.cfg.Logger.LogAttrs(ctx, s.level, s.message, append(all, attrs...)...)
}

// shown returns a key as it is written. It is empty if the line has none.
func (l *Logs) shown(s subject, key core.Key) string {
	if s.path == "" {
		return ""
	}
	return l.cfg.Key(key)
}

// fault samples an error. Misconfiguration is an error of all, and is told once for all.
func (l *Logs) fault(ctx context.Context, message, kind, name string, err error) {
	if errors.Is(err, core.ErrMisconfigured) {
		l.sample(ctx, subject{line: line{slog.LevelError, "misconfigured", ""}}, slog.Any("error", err))
		return
	}
	l.sample(ctx, subject{line: line{slog.LevelWarn, message, kind}, name: name}, slog.Any("error", err))
}

func (l *Logs) decision(ctx context.Context, e *core.DecisionEvent) {
	d := &e.Decision
	switch ended := errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, context.DeadlineExceeded); {
	case e.Err == nil, ended && d.Len() == 0: // the caller's own end is no failure
	case d.Len() > 0 && !errors.Is(e.Err, core.ErrMisconfigured):
		l.fault(ctx, "decided without Redis", "source", d.Source.String(), e.Err)
	default:
		l.fault(ctx, "decision failed", "", "", e.Err)
	}
	if d.Allowed || e.Op == core.OpPeek || e.Err != nil && d.Cause == nil {
		return
	}
	for i := range min(d.Len(), len(e.Charges)) {
		r := d.At(i)
		if r.Allowed || r.Policy.Shadow() {
			continue
		}
		at := subject{line: line{slog.LevelInfo, "denied", "policy"}, name: r.Policy.Name()}
		l.sampleKey(ctx, at, e.Charges[i].Key, slog.String("source", r.Source.String()), slog.Int64("limit", r.Limit),
			wait("retry_after", r.RetryAfter))
	}
}

// wait is a wait as a duration, and "never" if waiting does not help.
func wait(name string, d time.Duration) slog.Attr {
	if d == core.Never {
		return slog.String(name, "never")
	}
	return slog.Duration(name, d)
}

func (l *Logs) reservation(ctx context.Context, e *core.ReservationEvent) {
	name := e.Op.String()
	switch {
	case e.Op == core.OpHoldExpired:
		l.sample(ctx, subject{line: line{slog.LevelWarn, name, ""}})
	case e.Err == nil:
	case errors.Is(e.Err, core.ErrMisconfigured):
		l.fault(ctx, name, "", "", e.Err)
	default:
		if e.Op != core.OpRefundFailed {
			name += " failed"
		}
		l.sample(ctx, subject{line: line{slog.LevelError, name, ""}}, slog.Any("error", e.Err))
	}
}

func (l *Logs) change(ctx context.Context, e *core.KeyEvent) {
	name := "none"
	if e.Policy != nil {
		name = e.Policy.Name()
	}
	switch {
	case e.Err != nil:
		l.fault(ctx, e.Op.String()+" failed", "policy", name, e.Err)
	case e.Op != core.OpLedger:
		at := subject{line: line{slog.LevelInfo, e.Op.String(), "policy"}, name: name}
		l.sampleKey(ctx, at, e.Key)
	}
}

func (l *Logs) server(ctx context.Context, e *core.ServerEvent) {
	level := map[core.Op]slog.Level{
		core.OpCircuitOpened: slog.LevelError, core.OpCircuitClosed: slog.LevelInfo,
		core.OpOverload: slog.LevelWarn, core.OpScriptMissing: slog.LevelDebug,
	}[e.Op]
	attrs := []slog.Attr{slog.String("node", e.Node)}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	if e.Op == core.OpOverload { // each second
		l.sample(ctx, subject{line: line{level, e.Op.String(), "node"}, name: e.Node}, attrs[1:]...)
		return
	}
	l.cfg.Logger.LogAttrs(ctx, level, e.Op.String(), attrs...)
}

func (l *Logs) acquire(ctx context.Context, e *semaphore.AcquireEvent) {
	name := e.Semaphore.Name()
	ended := errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, context.DeadlineExceeded)
	switch {
	case e.Full != nil, e.Err == nil, ended && e.Source == core.SourceNone:
	case e.Source == core.SourceNone:
		l.fault(ctx, "acquire failed", "semaphore", name, e.Err)
	default:
		l.fault(ctx, "slot without Redis", "semaphore", name, e.Err)
	}
	if e.Refused() {
		l.sample(ctx, subject{line: line{slog.LevelInfo, "slot refused", "semaphore"}, name: name},
			slog.String("source", e.Source.String()))
	}
}

func (l *Logs) lease(ctx context.Context, e *semaphore.LeaseEvent) {
	attrs := []slog.Attr{slog.String("semaphore", e.Semaphore.Name())}
	switch {
	case e.Kind == semaphore.LeaseLost:
		l.cfg.Logger.LogAttrs(ctx, slog.LevelError, e.Kind.String(), attrs...)
	case e.Kind != semaphore.LeaseReleased:
		l.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, e.Kind.String(), attrs...)
	case e.Err != nil:
		l.fault(ctx, "release failed", "semaphore", e.Semaphore.Name(), e.Err)
	}
}
