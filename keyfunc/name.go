package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Name returns a Func whose key is a hash of a name that a user types, such as a login name, for a
// limit on guesses at one account. The function read finds the name in the request.
//
// The function normalize maps all spellings of a name to one. It must do what the login does;
// otherwise another spelling of the name is another key. If the login ignores case or Unicode
// forms, so must normalize (see golang.org/x/text/unicode/norm). Nil trims white space and applies
// strings.ToLower.
//
// Name trusts nothing, and any client can spend the key of a name that it knows. Pair it with a
// limit on addresses, and count failures only. An empty name is ErrNoKey. A nil read is an error.
func Name(read func(*http.Request) string, normalize func(string) string) (Func, error) {
	if read == nil {
		return nil, errors.New("keyfunc: Name: read is nil")
	}
	if normalize == nil {
		normalize = func(s string) string { return strings.ToLower(strings.TrimSpace(s)) }
	}
	return func(r *http.Request) (string, error) {
		name := normalize(read(r))
		if name == "" {
			return "", fmt.Errorf("%w: the name is empty", ErrNoKey)
		}
		return hash(name, nil)
	}, nil
}
