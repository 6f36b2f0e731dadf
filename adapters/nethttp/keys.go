package nethttp

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// ruleKey derives the key of a rule below the scope. It reports false if the request has none and
// the rule does not apply then.
func (x *Exchange) ruleKey(
	of string, f keyfunc.Func, noKey NoKey, r *http.Request,
) (key core.Key, ok bool, err error) {
	if err := x.deriveScope(r); err != nil {
		return core.Key{}, false, err
	}
	part, err := derive(f, r)
	switch {
	case err != nil && noKey == NoKeySkip &&
		errors.Is(err, keyfunc.ErrNoKey) && !errors.Is(err, keyfunc.ErrAmbiguous):
		return core.Key{}, false, nil
	case err != nil:
	case x.scope != "":
		key, err = core.NewKey(x.scope, part)
	default:
		key, err = core.NewKey(part)
	}
	if err != nil {
		return core.Key{}, false, fmt.Errorf("nethttp: key of %s: %w", of, err)
	}
	return key, true, nil
}

// deriveScope sets the scope once, if the Guard has one.
func (x *Exchange) deriveScope(r *http.Request) (err error) {
	if f := x.guard.cfg.Scope; f != nil && x.scope == "" {
		if x.scope, err = derive(f, r); err != nil {
			return fmt.Errorf("nethttp: scope: %w", err)
		}
	}
	return nil
}

// derive returns the key of a request, which is never empty without an error.
func derive(f keyfunc.Func, r *http.Request) (string, error) {
	key, err := f(r)
	if err == nil && key == "" {
		err = keyfunc.ErrNoKey
	}
	return key, err
}
