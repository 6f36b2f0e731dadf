package plans

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// SetOverride replaces the override of a tenant. This process obeys it at once, and every other one
// of the same Client within a second. If the error is one of Redis, the override may be set or not;
// it does no harm to set it again. After Names, a limit or a cap of another name is an error.
func (b *Book) SetOverride(ctx context.Context, tenant string, o Override) error {
	if err := cmp.Or(o.check(b.Set()), b.sets.unknown(o)); err != nil {
		return err
	}
	text, err := o.MarshalText()
	if err != nil {
		return err
	}
	done, err := b.change(ctx, tenant, setOverride, string(text), o.Until)
	if err == nil && !done {
		return fmt.Errorf("plans: override.until is over by the clock of Redis: %s",
			o.Until.Format(time.RFC3339Nano))
	}
	return err
}

// DeleteOverride deletes the override of a tenant, and reports whether there was one. It spreads as
// SetOverride does.
func (b *Book) DeleteOverride(ctx context.Context, tenant string) (was bool, err error) {
	return b.change(ctx, tenant, deleteOverride, "", time.Time{})
}

// Override returns the override of a tenant, and whether there is one. It asks Redis, for at most
// Config.Timeout.
func (b *Book) Override(ctx context.Context, tenant string) (o Override, is bool, err error) {
	if tenant == "" {
		return o, false, errNoName
	}
	text, _, is, err := b.overrideText(ctx, tenant)
	if err != nil || !is {
		return o, false, err
	}
	err = o.UnmarshalText([]byte(text))
	return o, err == nil, err
}

// Refresh makes every process ask Resolve again about a tenant, within a second: its plan has
// changed. Without it they ask when Config.TTL has passed.
func (b *Book) Refresh(ctx context.Context, tenant string) error {
	_, err := b.change(ctx, tenant, touchTenant, "", time.Time{})
	return err
}

// change changes what the store knows of a tenant, and makes this process learn it anew.
func (b *Book) change(
	ctx context.Context, tenant string, o operation, text string, until time.Time,
) (done bool, err error) {
	if tenant == "" {
		return false, errNoName
	}
	if done, err = b.store.change(ctx, tenant, o, text, until); err != nil {
		return false, fmt.Errorf("plans: override: %s: %w", o, err)
	}
	b.tenants.Changed(tenant)
	return done, nil
}
