package main

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
)

// newProxy returns the handler behind the Meters, which sends requests to the upstream.
func newProxy(cfg config) http.Handler {
	target := cfg.upstream
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true // the client decides which encodings it accepts
	proxy := &httputil.ReverseProxy{Transport: transport}
	if target == nil {
		target = &url.URL{Scheme: "http", Host: "upstream.invalid"}
		proxy.Transport = transcripts{cfg.delay}
	}
	proxy.FlushInterval = -1 // send each event at once
	proxy.Rewrite = func(p *httputil.ProxyRequest) {
		p.SetURL(target)
		h := p.Out.Header
		for _, name := range requestSecrets {
			h.Del(name)
		}
		if speaksAnthropic(p.In) {
			h.Set("X-Api-Key", cfg.upstreamKey)
		} else {
			h.Set("Authorization", "Bearer "+cfg.upstreamKey)
		}
	}
	proxy.ModifyResponse = cleanResponse
	proxy.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err error) {
		if r.Context().Err() == nil {
			log.Printf("upstream: %v", err)
		}
		refuse(w, r, http.StatusBadGateway, "api_error", "upstream_failed", "The upstream failed.")
	}
	return proxy
}

// requestSecrets are the headers that stay here: the client's credentials, what names an account
// at the upstream, and what the gateway does not offer.
var requestSecrets = []string{
	"Authorization", "X-Api-Key", "Cookie", "X-Act-As", "X-Request-Id",
	"Openai-Organization", "Openai-Project", "Connection", "Upgrade",
}

// responseSecrets name the gateway's account at the upstream.
var responseSecrets = []string{
	"Set-Cookie", "Openai-Organization", "Openai-Project", "Anthropic-Organization-Id",
}

// cleanResponse removes what concerns the gateway's account at the upstream.
func cleanResponse(r *http.Response) error {
	if r.StatusCode == http.StatusUnauthorized || r.StatusCode == http.StatusForbidden {
		_ = r.Body.Close()
		return fmt.Errorf("status %d: %w", r.StatusCode, errUpstreamKey)
	}
	for name := range r.Header {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "x-ratelimit-") || strings.HasPrefix(lower, "anthropic-ratelimit-") {
			r.Header.Del(name)
		}
	}
	for _, name := range responseSecrets {
		r.Header.Del(name)
	}
	return nil
}

// errUpstreamKey replaces a response that would tell a tenant about the gateway's own key.
var errUpstreamKey = errors.New("it rejects UPSTREAM_KEY")
