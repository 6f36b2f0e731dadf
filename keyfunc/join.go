package keyfunc

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
)

// Join returns a Func that combines the keys of all parts into one. Different parts are always
// different keys, because the length of each part precedes it, as in "4:acme3:bob".
//
// It trusts what its parts trust. A part that a client can vary gives the client as many keys as it
// likes. If a part fails, Join returns its error; an empty part is ErrNoKey. A nil Func is an
// error.
func Join(first Func, others ...Func) (Func, error) {
	parts, err := nonNil("Join", first, others)
	if err != nil {
		return nil, err
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
	}, nil
}

// Or returns a Func that takes the first key that the request has: the key of first, or, if that is
// ErrNoKey or empty, the key of the next Func. Any other error ends the search; in particular Or
// never falls back from ErrAmbiguous.
//
// The number of the Func precedes its key, as in "1:192.0.2.7", so that a value under one Func is
// never the key of another. Or trusts what all its Funcs trust. It is wrong if a weak Func stands
// beside a strong one, because a client chooses the weak one by leaving out the other key. A nil
// Func is an error.
func Or(first Func, others ...Func) (Func, error) {
	funcs, err := nonNil("Or", first, others)
	if err != nil {
		return nil, err
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
	}, nil
}

// nonNil returns a copy of all Funcs, because the caller may change its slice later.
func nonNil(constructor string, first Func, others []Func) ([]Func, error) {
	funcs := append([]Func{first}, others...)
	var err error
	for i, f := range funcs {
		err = errors.Join(err, faultIf(f == nil, "%s: Func %d of %d is nil", constructor, i+1, len(funcs)))
	}
	return funcs, err
}
