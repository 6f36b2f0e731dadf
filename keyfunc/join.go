package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

var errNil = errors.New("keyfunc: a Func is nil")

// Join is all parts as one key. Different parts are always different keys: each is preceded by its length, as in
// "4:acme3:bob". If a part fails, so does Join, with its error; an empty part is ErrNoKey. It trusts what its parts trust,
// and is wrong where one of them is: a part that a client can vary gives it as many keys as it likes.
func Join(parts ...Func) Func {
	if len(parts) == 0 {
		return fail(errors.New("keyfunc: Join of nothing"))
	}
	parts = slices.Clone(parts) // the caller may change its own while requests are served
	if slices.ContainsFunc(parts, isNil) {
		return fail(errNil)
	}
	return func(r *http.Request) (string, error) {
		var b strings.Builder
		for _, f := range parts {
			part, err := f.key(r)
			if err != nil {
				return "", err
			}
			b.WriteString(strconv.Itoa(len(part)))
			b.WriteByte(':')
			b.WriteString(part)
		}
		return b.String(), nil
	}
}

// Or is the first key that is there: of first, or where that is ErrNoKey or empty of the next. Any other error, such
// as ErrAmbiguous, ends it. The key is preceded by the number of its Func, as in "1:192.0.2.7", so that a client cannot meet the key of one by
// the value of another. It trusts what they all trust, and is wrong where a weak one stands beside a strong one: a client
// chooses between them by what it leaves away.
func Or(first Func, others ...Func) Func {
	funcs := append([]Func{first}, others...)
	if slices.ContainsFunc(funcs, isNil) {
		return fail(errNil)
	}
	return func(r *http.Request) (string, error) {
		var last error
		for i, f := range funcs {
			key, err := f.key(r)
			if err == nil {
				return strconv.Itoa(i) + ":" + key, nil
			}
			if !errors.Is(err, ErrNoKey) || errors.Is(err, ErrAmbiguous) {
				return "", err
			}
			last = err
		}
		return "", last
	}
}

func isNil(f Func) bool { return f == nil }

// key refuses the empty key here because in a joined or numbered one nobody would see it any more: all requests
// without a key would share it.
func (f Func) key(r *http.Request) (string, error) {
	key, err := f(r)
	if err == nil && key == "" {
		err = fmt.Errorf("%w: a part is empty", ErrNoKey)
	}
	return key, err
}
