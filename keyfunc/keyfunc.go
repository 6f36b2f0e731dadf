package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
)

// A Func derives a key from a request. It must be safe for concurrent use. If the request has no
// key, it should return an error that wraps ErrNoKey; an empty key counts as one. Its error is for
// logs and never appears in a response. It must not read the body, except by r.PostFormValue: the
// handler could not read the body again.
//
// Any func(*http.Request) (string, error) is a Func.
type Func func(*http.Request) (string, error)

// ErrNoKey matches the error of a Func for a request that has nothing to derive the key from.
var ErrNoKey = errors.New("keyfunc: no key")

// ErrAmbiguous matches the error of a Func for a request that carries a key but leaves open which
// one: the value is sent more than once, is malformed, is blank or is longer than MaxLen. It does
// not match ErrNoKey, because a handler may read a value from such a request. A caller that exempts
// requests without a key must refuse this one; otherwise a client escapes its limit by sending its
// key twice.
var ErrAmbiguous = errors.New("keyfunc: ambiguous key")

// MaxLen is the length in bytes of the longest value that becomes a key without being hashed.
const MaxLen = 256

// Must returns f, and panics if err is not nil. It is for variables initialized at start-up, as
// template.Must:
//
//	var byAPIKey = keyfunc.Must(keyfunc.Header("X-Api-Key"))
func Must(f Func, err error) Func {
	if err != nil {
		panic(err)
	}
	return f
}

// faultIf returns the error of a constructor, or nil.
func faultIf(faulty bool, format string, args ...any) error {
	if !faulty {
		return nil
	}
	return fmt.Errorf("keyfunc: "+format, args...)
}

// key calls f and reports an empty key as ErrNoKey. Inside a composed key an empty one would go
// unnoticed, and all requests without a key would share it.
func (f Func) key(r *http.Request) (string, error) {
	key, err := f(r)
	if err == nil && key == "" {
		err = fmt.Errorf("%w: the key is empty", ErrNoKey)
	}
	return key, err
}
