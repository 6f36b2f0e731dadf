package outbound

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/core"
)

// KeyFunc derives a key from an outgoing request. Keys that share the outermost part are decided in
// one step with the slot, and in one script of a Redis Cluster. The keys of this package do so for
// each host. A KeyFunc must be safe for concurrent use, and must not read the body.
type KeyFunc func(*http.Request) (core.Key, error)

// ByHost returns the key of the host of a request's URL, with its port unless that is the scheme's
// own. A URL without a host is an error that wraps core.ErrKey.
func ByHost(r *http.Request) (core.Key, error) {
	host, err := hostOf(r)
	if err != nil {
		return core.Key{}, err
	}
	return core.NewKey(host)
}

// ByCredential returns the key of a host and of the account there: a hash of the credentials of the
// request. These are what Config.Credential returns, and otherwise Authorization, X-Api-Key,
// Api-Key, X-Goog-Api-Key, and key in the query. Of an AWS signature only the access key counts,
// because the rest changes with each request. A request without credentials has the key of ByHost.
//
// The default is wrong for credentials that change, such as OAuth tokens, for accounts with several
// keys, and for credentials elsewhere: name the account in Config.Credential.
func ByCredential(r *http.Request) (core.Key, error) {
	if keys := derivedKeys(r); keys != nil {
		return keys[0], nil
	}
	host, err := hostOf(r)
	if err != nil {
		return core.Key{}, err
	}
	if c := credential(r); c != "" {
		return core.NewKey(host, c)
	}
	return core.NewKey(host)
}

// ByModel returns the key of ByCredential and below it the model that Config.Meter has read from
// the request. A request without a model is an error that wraps core.ErrKey.
func ByModel(r *http.Request) (core.Key, error) {
	if keys := derivedKeys(r); len(keys) > 1 {
		return keys[1], nil
	}
	account, err := ByCredential(r)
	if err != nil {
		return core.Key{}, err
	}
	model := ModelOf(r.Context())
	if model == "" {
		return core.Key{}, fmt.Errorf("outbound: %w: the request has no model", core.ErrKey)
	}
	return below(account, model)
}

// derivation is the context of a request whose keys are derived. It knows what ByCredential and
// ByModel read, and what they return once that is known: several rules ask for the same key, and
// each would take a hash.
type derivation struct {
	context.Context
	credential *string // that of Config.Credential, or nil
	model      string
	of         *http.Request // whose keys are known, or nil; a KeyFunc may ask for those of another
	keys       []core.Key    // of ByCredential, and of ByModel if there is a model
}

type (
	derivationContextKey struct{}
	modelContextKey      struct{}
	credentialContextKey struct{}
)

// Value implements context.Context. An outer Transport may know what this one does not.
func (d *derivation) Value(key any) any {
	switch key.(type) {
	case derivationContextKey:
		return d
	case modelContextKey:
		if d.model != "" {
			return d.model
		}
	case credentialContextKey:
		if d.credential != nil {
			return *d.credential
		}
	}
	return d.Context.Value(key)
}

// derivedKeys returns the keys of a request if they are known, or nil.
func derivedKeys(r *http.Request) []core.Key {
	d, ok := r.Context().Value(derivationContextKey{}).(*derivation)
	if !ok || d.of != r {
		return nil
	}
	return d.keys
}

// ModelOf returns the model that Config.Meter has read from the request of a context, or "". It is
// for a KeyFunc.
func ModelOf(ctx context.Context) string {
	model, _ := ctx.Value(modelContextKey{}).(string)
	return model
}

// below returns a key with further parts.
func below(k core.Key, more ...string) (core.Key, error) {
	parts := append(k.Parts(), more...)
	return core.NewKey(parts[0], parts[1:]...)
}

// hostOf returns the host of a request as a part of its keys.
func hostOf(r *http.Request) (string, error) {
	if r.URL == nil || r.URL.Hostname() == "" {
		return "", fmt.Errorf("outbound: %w: the URL of the request has no host", core.ErrKey)
	}
	host, port := strings.ToLower(strings.TrimSuffix(r.URL.Hostname(), ".")), r.URL.Port()
	scheme := r.URL.Scheme
	if port == "" || scheme == "https" && port == "443" || scheme == "http" && port == "80" {
		return host, nil
	}
	return host + ":" + port, nil
}

// credentialHeaders are the headers that carry the credentials of an API.
var credentialHeaders = [...]string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// credential returns a hash of the credentials of a request, or "" if it has none.
func credential(r *http.Request) string {
	var room [256]byte
	all := room[:0]
	if name, ok := r.Context().Value(credentialContextKey{}).(string); ok {
		all = append(all, name...)
	} else {
		all = appendCredentials(all, r)
	}
	if len(all) == 0 {
		return ""
	}
	sum := sha256.Sum256(all)
	return string(base64.RawURLEncoding.AppendEncode(all[:0], sum[:16]))
}

// appendCredentials appends the credentials that stand in a request.
func appendCredentials(all []byte, r *http.Request) []byte {
	for _, name := range credentialHeaders {
		for _, value := range r.Header[name] {
			all = append(append(append(all, name...), 0), accessKey(value)...)
			all = append(all, 0)
		}
	}
	if strings.Contains(r.URL.RawQuery, "key=") {
		for _, value := range r.URL.Query()["key"] {
			all = append(append(append(all, "key\x00"...), value...), 0)
		}
	}
	return all
}

// accessKey returns the part of an Authorization that stays the same for an account: of an AWS
// signature (version 4) the access key, and otherwise the whole value.
func accessKey(value string) string {
	scheme, rest, _ := strings.Cut(value, " ")
	if !strings.HasPrefix(scheme, "AWS4-") {
		return value
	}
	_, scope, found := strings.Cut(rest, "Credential=")
	id, _, scoped := strings.Cut(scope, "/")
	if !found || !scoped {
		return value
	}
	return scheme + " " + id
}
