package signal

import (
	"strings"
	"time"
)

// This file has what is known of providers, each with its source and the date on which it was read.

// family is a set of headers that tell limits: a prefix, and one header for each member of a limit.
type family struct {
	prefix string // in the canonical form of net/http
	last   bool   // the name of the limit comes before the member, not after it
	apart  bool   // the limits are only of some requests, beside those of all
	// refills says that limits whose names have no period refill one by one until the reset. Limits
	// without a name are of windows, such as those of GitHub and X.
	refills bool
	source  string
}

var families = []family{
	{"X-Ratelimit-", false, false, true, // "the time until the rate limit resets to its initial state" (OpenAI)
		"platform.openai.com/docs/guides/rate-limits; console.groq.com/docs/rate-limits; " +
			"docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api; " +
			"api-dashboard.search.brave.com/documentation/guides/rate-limiting; 2026-11"},
	{"X-Rate-Limit-", false, false, false, "docs.x.com/x-api/fundamentals/rate-limits, 2026-11"},
	{"Ratelimit-", false, false, false, "draft-ietf-httpapi-ratelimit-headers-00 to -06"},
	// "The time when the limit will be fully replenished."
	{"Anthropic-Ratelimit-", true, false, true, "docs.anthropic.com/en/api/rate-limits, 2026-11"},
	{"Anthropic-Fast-", true, true, true, "docs.anthropic.com/en/api/rate-limits, 2026-11"},
	{"Anthropic-Priority-", true, true, true, "docs.anthropic.com/en/api/service-tiers, 2026-11"},
}

// Units, as core.Unit names them.
const (
	requests     = "requests"
	tokens       = "tokens"
	inputTokens  = "input-tokens"
	outputTokens = "output-tokens"
)

// word is a part of a limit's name that tells its unit.
type word struct {
	part string
	unit string
}

// words are tried in this order, so that input tokens are not tokens.
var words = []word{
	{"input-tokens", inputTokens},      // Anthropic, as families
	{"output-tokens", outputTokens},    // Anthropic, as families
	{"tokens-generated", outputTokens}, // docs.fireworks.ai/serverless/rate-limits, 2026-11
	{"prompt", inputTokens},            // Fireworks, as above; also tokens-cache-adjusted-prompt
	{"tokens", tokens},                 // OpenAI and others, as families
	{"req", requests},                  // requests; req-minute of docs.mistral.ai, 2026-06
}

// periods are the last words of names such as tokens-minute (Cerebras, Mistral, SambaNova, Kong).
var periods = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour,
	"month": 30 * 24 * time.Hour, "5h": 5 * time.Hour, "7d": 7 * 24 * time.Hour,
}

// unitOf returns the unit of a limit by its name, or "". A limit without a name counts requests.
func unitOf(name string) string {
	for _, w := range words {
		if strings.Contains(name, w.part) {
			return w.unit
		}
	}
	if _, isPeriod := periods[name]; name == "" || isPeriod {
		return requests
	}
	return ""
}

// periodOf returns the period that a limit's name ends with, or 0. Anthropic's unified-7d_oi is of
// some models.
func periodOf(name string) time.Duration {
	period, _, _ := strings.Cut(name[strings.LastIndexByte(name, '-')+1:], "_")
	return periods[period]
}

// Limits of Anthropic's subscriptions (router-for-me/CLIProxyAPI#5915): unified is the one that
// counts for a request, the two of a period are the account's, and those with other names are of
// some models. What is rejected of overage is what would be paid for beyond these, which is so all
// the time where nobody pays for that.
const (
	unified = "unified"
	overage = "unified-overage"
)

var unifiedPeriods = []string{"unified-5h", "unified-7d"}

// coreResource is the resource of GitHub that limits without a name are of. Others, such as search
// and graphql, have limits of their own.
// docs.github.com/rest/rate-limit/rate-limit, 2026-11
//
// Azure DevOps names a service and a threshold in the same header, and counts TSTUs.
// learn.microsoft.com/azure/devops/integrate/concepts/rate-limits, 2026-11
const coreResource = "core"

// githubHeader is in every response of GitHub, also of GitHub Enterprise Server.
// docs.github.com/rest/using-the-rest-api/troubleshooting-the-rest-api, 2026-11
const githubHeader = "X-Github-Request-Id"

// meaning is what an error code says.
type meaning uint8

const (
	slow    meaning = iota + 1 // the caller is too fast
	spent                      // money or a quota is used up
	loaded                     // the provider has too much load
	blocked                    // the account is too fast, whatever the model
	large                      // the request alone is above the limit, which no wait changes
	quota                      // slow with a status of 429, and otherwise spent
)

// codes are the values of code, type, status and reason in an error, in lower case.
var codes = map[string]meaning{
	// platform.openai.com/docs/guides/error-codes, 2026-11
	"rate_limit_exceeded": slow, "insufficient_quota": spent, "billing_hard_limit_reached": spent,
	"billing_not_active": spent, "slow_down": loaded,
	// docs.anthropic.com/en/api/errors, 2026-11
	"rate_limit_error": slow, "overloaded_error": loaded, "billing_error": spent,
	// cloud.google.com/apis/design/errors, 2026-11
	"resource_exhausted": slow, "unavailable": loaded,
	// developers.google.com/workspace/drive/api/guides/handle-errors, 2026-11
	// Vertex AI sends the first of them for a model's capacity (google-gemini/gemini-cli#14831).
	"ratelimitexceeded": slow, "userratelimitexceeded": blocked, "dailylimitexceeded": spent,
	// Amazon's SP-API says it of a rate (amzn/selling-partner-api-docs#553).
	"quotaexceeded": quota,
	// developer.salesforce.com/docs, API Request Limits and Allocations, 2026-11: of 24 hours
	"request_limit_exceeded": spent,
	// docs.aws.amazon.com/bedrock/latest/APIReference/CommonErrors.html, 2026-11
	"throttlingexception": slow, "servicequotaexceededexception": spent,
	"modelnotreadyexception": loaded, "serviceunavailableexception": loaded,
	// console.groq.com/docs/errors, 2026-11
	"capacity_exceeded": loaded,
	// platform.moonshot.ai/docs/api/chat, 2026-11
	"exceeded_current_quota_error": spent, "rate_limit_reached_error": slow,
	"engine_overloaded_error": loaded,
}

// phrases are how error messages begin, in lower case, that tell what no code does. With a status of
// 402, which tells enough of the account, a phrase may stand anywhere. Elsewhere servers quote what
// a user wrote.
var phrases = []struct {
	text string
	meaning
}{
	// docs.github.com/rest/using-the-rest-api/troubleshooting-the-rest-api, 2026-11
	{secondaryLimit, blocked}, {"api rate limit exceeded", blocked},
	{"you have triggered an abuse detection mechanism", blocked}, // GitHub Enterprise Server, before 2021
	// docs.anthropic.com/en/api/errors, 2026-11: an invalid_request_error with a status of 400
	{"your credit balance is too low", spent},
	// kimi.com/code/docs/en/kimi-code/error-reference.html, 2026-11
	{"you've reached your usage limit", spent},
	// OpenAI (vanderschaarlab/climb#1); Groq says so with a status of 413
	{"request too large for", large},
	// OpenRouter, with a status of 402 (can1357/oh-my-pi#9569, continuedev/continue#11227,
	// cline/cline#940; the second one anomalyco/opencode#12219)
	{"fewer max_tokens", large}, {"can only afford 0.", spent},
	{"prompt tokens limit exceeded", large}, {"max_tokens limit exceeded", large},
	// openrouter.ai/docs/api-reference/limits, 2026-11
	{"rate limit exceeded: free-models-per-", blocked},
}

const secondaryLimit = "you have exceeded a secondary rate limit"

// days are parts of a quota's id or of a message, in lower case, that name a day.
var days = []string{
	"perday",    // quotaId of google.rpc.QuotaFailure: ai.google.dev/gemini-api/docs/rate-limits, 2026-11
	"per day (", // OpenAI and Groq: "on requests per day (RPD)", 2026-11
	"-per-day",  // OpenRouter, as above
}

// waitHeaders are the headers that state a wait, in the order in which they count.
var waitHeaders = []struct {
	name   string
	millis bool // and not seconds or a moment
}{
	{"Retry-After-Ms", true},      // OpenAI and Azure
	{"X-Ms-Retry-After-Ms", true}, // Azure, such as Cosmos DB
	{"Retry-After", false},
	{"X-Rate-Limit-Retry-After-Seconds", false}, // bucket4j-spring-boot-starter, 2026-11
}

// secondary is the wait that GitHub asks for after a secondary limit without any header.
// docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api, 2026-11
const secondary = time.Minute
