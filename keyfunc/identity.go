package keyfunc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"
)

// ContextValue returns a Func whose key is a value in the request's context, such as the user or
// tenant that authentication stored there.
//
// It trusts whatever stored the value. If the guard runs before that middleware, the value is
// missing. A value must be a string, an integer or a fmt.Stringer; any other type is an error that
// matches neither ErrNoKey nor ErrAmbiguous. The key is the value, readable in Redis: wrap the Func
// in HMAC if the value is personal.
//
// A missing or empty value is ErrNoKey. A value longer than MaxLen bytes is ErrAmbiguous. A context
// key that is nil or not comparable is an error.
func ContextValue(key any) (Func, error) {
	if key == nil {
		return nil, errors.New("keyfunc: ContextValue: the key is nil")
	}
	if !reflect.TypeOf(key).Comparable() {
		return nil, fmt.Errorf("keyfunc: ContextValue: a key of type %T is not comparable", key)
	}
	return func(r *http.Request) (string, error) {
		return textKey(r.Context().Value(key), "context value")
	}, nil
}

// Claim returns a Func whose key is a claim of a verified token, such as "sub" in a JWT (RFC 7519).
// The function claims returns the claims that authentication stored in the request's context, or
// nil if there are none.
//
// It trusts these claims. It is wrong if claims parses a token that nothing has verified, because a
// client writes any claims into that. A claim must be a string or an integer; any other type is an
// error that matches neither ErrNoKey nor ErrAmbiguous. The key is the claim, readable in Redis.
//
// A claim that is missing, null or empty is ErrNoKey. A claim longer than MaxLen bytes is
// ErrAmbiguous. A nil function and an empty name are errors.
func Claim(claims func(context.Context) map[string]any, name string) (Func, error) {
	err := errors.Join(
		faultIf(claims == nil, "Claim: claims is nil"),
		faultIf(name == "", "Claim: the name is empty"),
	)
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) (string, error) {
		return textKey(claims(r.Context())[name], name+" claim")
	}, nil
}

// PathValue returns a Func whose key is a wildcard of the route, such as {tenant} in "/t/{tenant}".
// The key is the unescaped value, so "/t/acme" and "/t/%61cme" have the same key.
//
// With http.ServeMux wrap the handlers and not the mux, which has not matched yet. The adapters
// for other routers set the values themselves. PathValue trusts the client, which writes the path,
// and is wrong wherever a client gains by another value. Use it behind an authorization that
// checks the value, or for a limit that all requests for one thing share.
//
// A missing or empty value is ErrNoKey. A value longer than MaxLen bytes is ErrAmbiguous. An empty
// name is an error.
func PathValue(name string) (Func, error) {
	if name == "" {
		return nil, errors.New("keyfunc: PathValue: the name is empty")
	}
	return func(r *http.Request) (string, error) {
		return bounded(r.PathValue(name), name+" path value")
	}, nil
}

// bounded returns the value unless it is empty or too long. The noun names it in errors.
func bounded(value, noun string) (string, error) {
	if value == "" {
		return "", fmt.Errorf("%w: no %s", ErrNoKey, noun)
	}
	if len(value) > MaxLen {
		return "", fmt.Errorf("%w: the %s has %d bytes, more than %d",
			ErrAmbiguous, noun, len(value), MaxLen)
	}
	return value, nil
}

// textKey returns a value as a key.
func textKey(value any, noun string) (string, error) {
	s, err := text(value)
	if err != nil {
		return "", fmt.Errorf("keyfunc: %s: %w", noun, err)
	}
	return bounded(s, noun)
}

// text returns the one spelling of a value, and the empty string for nil.
func text(value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "", fmt.Errorf("%s is not written as an integer", v)
		}
		return v.String(), nil
	case float64: // encoding/json decodes numbers into it
		if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
			return "", errors.New("the number is not an exact integer")
		}
		return strconv.FormatInt(int64(v), 10), nil
	}
	rv := reflect.ValueOf(value)
	if rv.Kind() == reflect.Pointer && rv.IsNil() {
		return "", nil
	}
	if s, ok := value.(fmt.Stringer); ok {
		return s.String(), nil
	}
	switch {
	case rv.Kind() == reflect.String:
		return rv.String(), nil
	case rv.CanInt():
		return strconv.FormatInt(rv.Int(), 10), nil
	case rv.CanUint():
		return strconv.FormatUint(rv.Uint(), 10), nil
	}
	return "", fmt.Errorf("type %T cannot be a key", value)
}
