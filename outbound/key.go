package outbound

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/outbound/internal/signal"
)

// KeyFunc derives a key from an outgoing request. Keys that share the outermost part are decided in
// one step with the slot, and in one script of a Redis Cluster. The keys of this package do so for
// each host. A KeyFunc must be safe for concurrent use, and must not read the body.
type KeyFunc func(*http.Request) (core.Key, error)

// ByHost returns the key of the host of a request's URL, with its port unless that is the scheme's
// own. A URL without a host is an error that wraps core.ErrKey.
func ByHost(r *http.Request) (core.Key, error) { return atHost(r, "") }

// atHost returns the key of a host and below it a part, unless that is empty.
func atHost(r *http.Request, part string) (core.Key, error) {
	if r.URL == nil || r.URL.Hostname() == "" {
		return core.Key{}, fmt.Errorf("outbound: %w: the URL of the request has no host", core.ErrKey)
	}
	host, port := strings.ToLower(strings.TrimSuffix(r.URL.Hostname(), ".")), r.URL.Port()
	scheme := r.URL.Scheme
	if port != "" && !(scheme == "https" && port == "443" || scheme == "http" && port == "80") {
		host += ":" + port
	}
	if part == "" {
		return core.NewKey(host)
	}
	return core.NewKey(host, part)
}

// ByCredential returns the key of a host and of the account there: a hash of the credentials of the
// request. These are what Config.Credential returns, and otherwise Authorization, X-Api-Key,
// Api-Key, X-Goog-Api-Key, and key in the query. Of an AWS signature only the access key counts,
// because the rest changes with each request. A request without credentials has the key of ByHost.
//
// The default is wrong for credentials that change, such as OAuth tokens, for accounts with several
// keys, and for credentials elsewhere: name the account in Config.Credential.
func ByCredential(r *http.Request) (core.Key, error) {
	x, _ := r.Context().Value(deliveryContextKey{}).(*delivery)
	if x == nil {
		return atHost(r, hashed(credentials(nil, r)))
	}
	if key := x.scopes[signal.Account]; x.req == r && key != (core.Key{}) { // several rules ask for it
		return key, nil
	}
	return atHost(r, x.credential)
}

// ByModel returns the key of ByCredential and below it the model that Config.Meter has read from
// the request. A request without a model is an error that wraps core.ErrKey.
func ByModel(r *http.Request) (core.Key, error) {
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

type deliveryContextKey struct{}

// Value implements context.Context.
func (x *delivery) Value(key any) any {
	if key == (deliveryContextKey{}) {
		return x
	}
	return x.Context.Value(key)
}

// ModelOf returns the model that Config.Meter has read from the request of a context, or "". It is
// for a KeyFunc.
func ModelOf(ctx context.Context) string {
	x, _ := ctx.Value(deliveryContextKey{}).(*delivery)
	if x == nil {
		return ""
	}
	return x.model
}

// below returns a key with further parts.
func below(k core.Key, more ...string) (core.Key, error) {
	parts := append(k.Parts(), more...)
	return core.NewKey(parts[0], parts[1:]...)
}

// credentialHeaders are the headers that carry the credentials of an API.
var credentialHeaders = [...]string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// hashed returns a hash of credentials, or "" of none.
func hashed(credentials []byte) string {
	if len(credentials) == 0 {
		return ""
	}
	sum := sha256.Sum256(credentials)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// credential returns a hash of what names the account of a request, or "".
func (t *Transport) credential(r *http.Request) string {
	if t.cfg.Credential != nil {
		return hashed([]byte(t.cfg.Credential(r)))
	}
	var room [256]byte
	return hashed(credentials(room[:0], r))
}

// credentials appends the credentials that stand in a request.
func credentials(all []byte, r *http.Request) []byte {
	for _, name := range credentialHeaders {
		for _, value := range r.Header[name] {
			all = append(append(append(append(all, name...), 0), accessKey(value)...), 0)
		}
	}
	if strings.Contains(r.URL.RawQuery, "key=") { // parsing allocates
		for _, value := range r.URL.Query()["key"] {
			all = append(append(append(all, "key\x00"...), value...), 0)
		}
	}
	return all
}

// accessKey returns the part of an Authorization that stays the same for an account: of an AWS
// signature (version 4) what is before the date, and otherwise the whole value.
func accessKey(value string) string {
	if strings.HasPrefix(value, "AWS4-") {
		value, _, _ = strings.Cut(value, "/")
	}
	return value
}
