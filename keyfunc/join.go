package keyfunc

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
)

var errNil = errors.New("keyfunc: a Func is nil")

// Join is all parts as one key. Different parts are always different keys: each is preceded by its length, as in
// "4:acme3:bob". If a part fails, so does Join, with its error. It trusts what its parts trust.
func Join(parts ...Func) Func {
	if len(parts) == 0 {
		return fail(errors.New("keyfunc: Join of nothing"))
	}
	for _, f := range parts {
		if f == nil {
			return fail(errNil)
		}
	}
	return func(r *http.Request) (string, error) {
		var b strings.Builder
		for _, f := range parts {
			part, err := f(r)
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

// Or is the first key that is there: of first, or where that is ErrNoKey of the next. Any other error ends it. The key is
// preceded by the number of its Func, as in "1:192.0.2.7", so that a client cannot meet the key of one by the value of
// another. It trusts what they all trust: a client chooses between them by what it leaves away.
func Or(first Func, others ...Func) Func {
	funcs := append([]Func{first}, others...)
	for _, f := range funcs {
		if f == nil {
			return fail(errNil)
		}
	}
	return func(r *http.Request) (string, error) {
		var last error
		for i, f := range funcs {
			key, err := f(r)
			if err == nil {
				return strconv.Itoa(i) + ":" + key, nil
			}
			if !errors.Is(err, ErrNoKey) {
				return "", err
			}
			last = err
		}
		return "", last
	}
}
