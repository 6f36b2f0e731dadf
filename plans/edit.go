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
	if tenant == "" {
		return errNoName
	}
	if err := cmp.Or(o.check(b.Set()), b.sets.unknown(o)); err != nil {
		return err
	}
	text, err := o.MarshalText()
	if err != nil {
		return err
	}
	set, err := b.store.set(ctx, tenant, string(text), o.Until)
	switch {
	case err != nil:
		return fmt.Errorf("plans: set override: %w", err)
	case !set:
		return fmt.Errorf("plans: override.until is over by the clock of Redis: %s",
			o.Until.Format(time.RFC3339Nano))
	}
	b.tenants.Changed(tenant)
	return nil
}

// DeleteOverride deletes the override of a tenant, and reports whether there was one. It spreads as
// SetOverride does.
func (b *Book) DeleteOverride(ctx context.Context, tenant string) (was bool, err error) {
	if tenant == "" {
		return false, errNoName
	}
	if was, err = b.store.remove(ctx, tenant); err != nil {
		return false, fmt.Errorf("plans: delete override: %w", err)
	}
	b.tenants.Changed(tenant)
	return was, nil
}

// Override returns the override of a tenant, and whether there is one. It asks Redis.
func (b *Book) Override(ctx context.Context, tenant string) (Override, bool, error) {
	if tenant == "" {
		return Override{}, false, errNoName
	}
	text, _, is, err := b.store.get(ctx, tenant)
	if err != nil || !is {
		return Override{}, false, prefixed("plans: read override: ", err)
	}
	o, err := decode(text)
	return o, err == nil, err
}

// Refresh makes every process ask Resolve again about a tenant, within a second: its plan has
// changed. Without it they ask when Config.TTL has passed.
func (b *Book) Refresh(ctx context.Context, tenant string) error {
	if tenant == "" {
		return errNoName
	}
	if err := b.store.touch(ctx, tenant); err != nil {
		return fmt.Errorf("plans: refresh: %w", err)
	}
	b.tenants.Changed(tenant)
	return nil
}
