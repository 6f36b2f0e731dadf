package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestSamplePlans(t *testing.T) {
	p, err := readPlans("plans.json")
	if err != nil {
		t.Fatal(err)
	}
	if team := p.plans["team"]; team.TokensPerMinute != 5000 || team.maxWait != 30*time.Second || p.plans["trial"].OutputTokensPerMinute != 0 {
		t.Errorf("plans %+v, %+v", team, p.plans["trial"])
	}
	if small := p.models["example-small"]; small.Tariff.Price.CacheWrite != 250_000 || small.MaxOutput != 512 {
		t.Errorf("model %+v", small)
	}
	for key, want := range map[string]string{ann: "acme/ann", bob: "acme/bob", eve: "globex/eve"} {
		if u := p.userOf(key); u == nil || u.tenant.name+"/"+u.name != want || u != p.named(u.tenant.name, u.name) {
			t.Errorf("%s is the key of %v", key, u)
		}
	}
	if p.userOf("") != nil || p.userOf("sk-other") != nil || p.named("acme", "eve") != nil {
		t.Error("a user where there is none")
	}
}

// Every fault is named with its field, and all of them at once.
func TestPlansFaults(t *testing.T) {
	sample, err := os.ReadFile("plans.json")
	if err != nil {
		t.Fatal(err)
	}
	const digest = "d0ca992830a797cb2ace4b3a93e392d012597b2750fb169705e6f190458625bb"
	for _, c := range []struct {
		name, before, after string // a change of the sample
		faults              []string
	}{
		{"none", "", "", nil},
		{"syntax", `"plans": {`, `"plans": [`, []string{"cannot be read: invalid character ':' after array element"}},
		{"something behind", "\n}\n", "\n} {}", []string{"cannot be read: something follows the JSON value"}},
		{"unknown section", `"comment"`, `"coment"`, []string{`cannot be read: unknown field "coment"`}},
		{"unknown field", `"queue": 4`, `"queue": 4, "quota": 1`, []string{`plans.team cannot be read: unknown field "quota"`}},
		{"type", `"queue": 4`, `"queue": "4"`, []string{"plans.team cannot be read: cannot unmarshal string into Go struct field plan.queue of type int64"}},
		{"fraction", `"queue": 4`, `"queue": 4.5`, []string{"plans.team cannot be read: cannot unmarshal number 4.5 into Go struct field plan.queue of type int64"}},
		{"zero", `"tokens_per_minute": 5000`, `"tokens_per_minute": 0`, []string{"plans.team.tokens_per_minute is 0: it must be between 1 and 1000000000000"}},
		{"negative", `"output_tokens_per_minute": 2000`, `"output_tokens_per_minute": -1`, []string{"plans.team.output_tokens_per_minute is -1: it must be between 0 and 1000000000000"}},
		{"huge", `"micro_dollars_per_month": 50000`, `"micro_dollars_per_month": 1000000000001`, []string{"plans.team.micro_dollars_per_month is 1000000000001: it must be between 1 and 1000000000000"}},
		{"streams", `"streams_per_tenant": 3`, `"streams_per_tenant": 1000001`, []string{"plans.team.streams_per_tenant is 1000001: it must be between 1 and 1000000"}},
		{"no wait", `"max_wait": "30s"`, `"max_wait": ""`, []string{`plans.team has a queue of 4 and a max_wait of "": set both or neither`}},
		{"no queue", `"queue": 4`, `"queue": 0`, []string{`plans.team has a queue of 0 and a max_wait of "30s": set both or neither`}},
		{"bad wait", `"max_wait": "30s"`, `"max_wait": "30"`, []string{`plans.team.max_wait is "30": it must be a duration above 0, such as 30s`}},
		{"price", `"input": 3000000`, `"input": -3`, []string{"models.example-large.price.input is -3: it must be between 0 and 1000000000000"}},
		{"output", `"max_output": 512`, `"max_output": -1`, []string{"models.example-large.max_output is -1: it must be between 0 and 1000000000000"}},
		{"unknown plan", `"plan": "trial"`, `"plan": "gold"`, []string{`tenants.globex.plan is "gold", which is not in plans`}},
		{"plan with a fault", `"queue": 4`, `"queue": -1`, []string{
			"plans.team.queue is -1: it must be between 0 and 10000", `plans.team has a queue of -1 and a max_wait of "30s": set both or neither`}},
		{"no keys", `"eve": "5f79feea6973999465b98dfd8b8f00ecfac00f612ba4ca4c6e84d153aaa1feec"`, "", []string{"tenants.globex.keys is missing or empty"}},
		{"the key itself", digest, "sk-example-acme-ann", []string{"tenants.acme.keys.ann is no SHA-256: it must be 64 hexadecimal digits"}},
		{"short digest", digest, digest[:62], []string{"tenants.acme.keys.ann is no SHA-256: it must be 64 hexadecimal digits"}},
		{"one key twice", "5f79feea6973999465b98dfd8b8f00ecfac00f612ba4ca4c6e84d153aaa1feec", digest, []string{"tenants.globex.keys.eve is also the key of tenants.acme.keys.ann"}},
		{"tenant twice", `"globex": {`, `"acme": {`, []string{"tenants.acme comes twice"}},
		{"name", `"globex": {`, `"glo bex": {`, []string{`tenants.glo bex has the name "glo bex": it must be 1 to 64 of the characters A-Z a-z 0-9 _ . and -`}},
		{"section that is none", `"keys": {`, `"keys": 1, "plan": {`, []string{"tenants.acme cannot be read: it is no JSON object"}},
		{"several", `"requests_per_minute": 10,`, `"requests_per_minute": -10, "streams_per_user": 0, "max_wait": 3,`, []string{
			"plans.trial cannot be read: cannot unmarshal number into Go struct field plan.max_wait of type string"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(string(sample), c.before, c.after, 1)
			_, err := parsePlans([]byte(text))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if want := strings.Join(c.faults, "\n"); got != want {
				t.Errorf("faults:\n%s\nwant:\n%s", got, want)
			}
		})
	}

	if _, err := parsePlans([]byte("{}")); err == nil ||
		err.Error() != "models is missing or empty\nplans is missing or empty\ntenants is missing or empty" {
		t.Errorf("an empty file: %v", err)
	}
	_, err = parsePlans([]byte(`{"models":{"m":{"price":{"input":-1}}},"plans":{"p":{}},"tenants":{"t":{"plan":"q","keys":{"u":""}}}}`))
	for _, field := range []string{"models.m.price.input", "plans.p.requests_per_minute", "plans.p.tokens_per_minute",
		"plans.p.micro_dollars_per_month", "plans.p.streams_per_tenant", "plans.p.streams_per_user", "tenants.t.plan", "tenants.t.keys.u"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not among %v", field, err)
		}
	}
}

func TestConfigFaults(t *testing.T) {
	for name, value := range map[string]string{"UPSTREAM": "api.example.com", "REPLICAS": "two", "EVENT_DELAY": "1", "REDIS_TIMEOUT": "1", "LEASE": "1", "DRAIN": "1"} {
		t.Setenv(name, value)
		if _, err := readConfig(); err == nil || !strings.HasPrefix(err.Error(), name) && !strings.Contains(err.Error(), "\n"+name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	t.Setenv("REPLICAS", "")
	for _, name := range []string{"EVENT_DELAY", "REDIS_TIMEOUT", "LEASE", "DRAIN"} {
		t.Setenv(name, "1s")
	}
	t.Setenv("UPSTREAM", "https://api.example.com/v1/")
	if _, err := readConfig(); err == nil || !strings.HasPrefix(err.Error(), "UPSTREAM_KEY") {
		t.Errorf("without a key: %v", err)
	}
	t.Setenv("UPSTREAM_KEY", "sk")
	if cfg, err := readConfig(); err != nil || cfg.upstream.String() != "https://api.example.com" {
		t.Errorf("upstream %v, %v", cfg.upstream, err)
	}
}
