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

// ContextValue is a value of the request's context, such as the user or tenant that the authentication in front has put
// there. It trusts who put it there, and is wrong where the guard stands outside of that: then nothing is there yet,
// which is ErrNoKey, as is an empty value. One of more than MaxLen bytes is ErrAmbiguous. Values may be strings, integers and
// fmt.Stringers; of any other type, every call fails with an error that is not ErrNoKey. The key is the value itself, readable in
// Redis: wrap it in HMAC if it is personal.
func ContextValue(key any) Func {
	if key == nil {
		return fail(errors.New("keyfunc: ContextValue: the key is nil"))
	}
	return func(r *http.Request) (string, error) {
		value, err := text(r.Context().Value(key))
		if err != nil {
			return "", fmt.Errorf("%w of the context's value", err)
		}
		return bounded(value, "context value")
	}
}

// Claim is a claim of the token that the authentication in front has verified, such as "sub" of a JWT (RFC 7519). claims
// finds that token's claims in the request's context, and nil if there is none. It trusts them: it is wrong where claims
// parses a token that nobody has verified, which clients write as they like. A claim that is missing, null or empty is
// ErrNoKey, and one of more than MaxLen bytes is ErrAmbiguous. Strings and integers are keys, readable in Redis; a claim of any other type fails with
// an error that is not ErrNoKey.
func Claim(claims func(context.Context) map[string]any, name string) Func {
	if claims == nil {
		return fail(errNil)
	}
	return func(r *http.Request) (string, error) {
		value, err := text(claims(r.Context())[name])
		if err != nil {
			return "", fmt.Errorf("%w of the claim %s", err, name)
		}
		return bounded(value, name+" claim")
	}
}

// PathValue is a part of the path that the route names, as {tenant} in "/t/{tenant}", as the router spells it. The adapters
// fill it in for their frameworks; with http.ServeMux, wrap the handlers and not the mux. It trusts
// the client, who writes the path, and is wrong wherever he gains by another value; use it after authorization has
// compared it, or for a limit that all who ask for the same thing share. A value that is missing or empty is
// ErrNoKey, and one of more than MaxLen bytes is ErrAmbiguous.
func PathValue(name string) Func {
	return func(r *http.Request) (string, error) { return bounded(r.PathValue(name), name+" in the path") }
}

func bounded(value, what string) (string, error) {
	if value == "" {
		return "", fmt.Errorf("%w: no %s", ErrNoKey, what)
	}
	if len(value) > MaxLen {
		return "", fmt.Errorf("%w: %s has %d bytes, more than %d", ErrAmbiguous, what, len(value), MaxLen)
	}
	return value, nil
}

// text is the one spelling of a value, empty for nil.
func text(value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "", fmt.Errorf("keyfunc: a fraction is no key: %s", v)
		}
		return v.String(), nil
	case float64: // what encoding/json makes of a number
		if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
			return "", errors.New("keyfunc: a number that is no exact integer is no key")
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
	return "", fmt.Errorf("keyfunc: a %T is no key", value)
}
