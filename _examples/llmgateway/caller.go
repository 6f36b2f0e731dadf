package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// caller is the tenant and the user of a request.
type caller struct {
	*user
	request string // names the request on the operator's page
}

type callerKey struct{}

// callerOf returns the caller that authentication has found.
func callerOf(r *http.Request) *caller {
	c, _ := r.Context().Value(callerKey{}).(*caller)
	return c
}

// tenantOf and userOf are the keys of the limits.
func tenantOf(r *http.Request) (string, error) {
	if c := callerOf(r); c != nil {
		return c.tenant.name, nil
	}
	return "", keyfunc.ErrNoKey
}

func userOf(r *http.Request) (string, error) {
	if c := callerOf(r); c != nil {
		return c.name, nil
	}
	return "", keyfunc.ErrNoKey
}

// authenticate finds the caller by its API key.
func (g *gateway) authenticate(next http.Handler) http.Handler {
	find := func(r *http.Request) *user {
		if key := apiKey(r); key != "" {
			return g.plans.userOf(key)
		}
		return nil
	}
	return identify(next, find, "The API key is missing or unknown.")
}

// actAs lets the operator send requests of any user, without its API key.
func (g *gateway) actAs(next http.Handler) http.Handler {
	find := func(r *http.Request) *user {
		tenant, name, _ := strings.Cut(r.Header.Get("X-Act-As"), "/")
		return g.plans.named(tenant, name)
	}
	return identify(next, find, "X-Act-As names no tenant/user of the plans.")
}

// identify passes requests of known users on, with their caller in the context.
func identify(next http.Handler, find func(*http.Request) *user, message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := find(r)
		if u == nil {
			refuse(w, r, http.StatusUnauthorized, "authentication_error", "invalid_api_key", message)
			return
		}
		c := &caller{user: u, request: r.Header.Get("X-Request-Id")}
		if c.request == "" || len(c.request) > 32 {
			c.request = rand.Text()[:8]
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	})
}

// apiKey returns the key of a request, or "" if there is none or there are several.
func apiKey(r *http.Request) string {
	keys := slices.Clone(r.Header.Values("X-Api-Key"))
	for _, value := range r.Header.Values("Authorization") {
		scheme, token, _ := strings.Cut(value, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return ""
		}
		keys = append(keys, strings.TrimSpace(token))
	}
	if keys = slices.Compact(keys); len(keys) != 1 {
		return ""
	}
	return keys[0]
}

// speaksAnthropic reports whether the client expects Anthropic's API.
func speaksAnthropic(r *http.Request) bool {
	format, known := llm.FormatOf(r)
	return known && format == llm.FormatAnthropicMessages || r.Header.Get("Anthropic-Version") != ""
}

// refuse answers with an error of the API that the client expects. kind is the error's type at
// Anthropic, code its code at OpenAI.
func refuse(w http.ResponseWriter, r *http.Request, status int, kind, code, message string) {
	general := "invalid_request_error"
	if status >= http.StatusInternalServerError {
		general = "server_error"
	}
	var body any = map[string]any{"error": map[string]any{
		"message": message, "type": general, "param": nil, "code": code,
	}}
	if speaksAnthropic(r) {
		body = map[string]any{"type": "error", "error": map[string]any{
			"type": kind, "message": message,
		}}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
