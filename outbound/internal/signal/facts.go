package signal

import (
	"net/http"
	"time"
)

// This file has what is known of providers, each with its source and the date on which it was read.

// family is a set of headers that tell limits: a prefix, and one header for each member of a limit.
type family struct {
	prefix string // in the canonical form of net/http
	last   bool   // the name of the limit comes before the member, not after it
	apart  string // before the names of limits that are only of some requests, beside those of all
	// refills says that limits whose names have no period refill one by one until the reset. Limits
	// without a name are of windows, such as those of GitHub and X.
	refills bool
}

var families = []family{
	// "The time until the rate limit resets to its initial state" (OpenAI).
	// platform.openai.com/docs/guides/rate-limits, console.groq.com/docs/rate-limits,
	// docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api,
	// api-dashboard.search.brave.com/documentation/guides/rate-limiting, 2026-11
	{"X-Ratelimit-", false, "", true},
	{"X-Rate-Limit-", false, "", false}, // docs.x.com/x-api/fundamentals/rate-limits, 2026-11
	{"Ratelimit-", false, "", false},    // draft-ietf-httpapi-ratelimit-headers-00 to -07
	// "The time when the limit will be fully replenished." docs.anthropic.com/en/api/rate-limits, 2026-11
	{"Anthropic-Ratelimit-", true, "", true},
	{"Anthropic-Fast-", true, "fast-", true},
	{"Anthropic-Priority-", true, "priority-", true}, // docs.anthropic.com/en/api/service-tiers, 2026-11
}

// fieldFamily is that of RateLimit-Limit and the like, and of the members of RateLimit in draft -07.
var fieldFamily = &families[2]

// requests is the name of a limit that has none.
const requests = "requests"

// periods are the last words of names such as tokens-minute (Cerebras, Mistral, SambaNova, Kong).
// Anthropic's unified-7d_oi is of some models.
var periods = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour,
	"month": 30 * 24 * time.Hour, "5h": 5 * time.Hour, "7d": 7 * 24 * time.Hour,
}

// members are the members of a limit that headers have.
var members = []string{"limit", "remaining", "reset", "policy", "status"}

// overage is no limit: what is rejected of it is what would be paid for beyond Anthropic's
// subscriptions, which is so all the time where nobody pays for that.
const overage = "unified-overage"

// subscription is before the headers of Anthropic's subscriptions (router-for-me/CLIProxyAPI#5915):
// the one without a further name is of the limit that counts for a request, the two of a period are
// the account's, and those with other names are of some models.
const (
	subscription = "Anthropic-Ratelimit-Unified"
	rejected     = "rejected"
)

// resourceHeaders name what a limit without a name is of. GitHub has resources beside coreResource,
// such as search and graphql, whose limits are their own. Azure DevOps names a service and a threshold
// there, and counts TSTUs. Discord names a bucket of routes.
// docs.github.com/rest/rate-limit/rate-limit, docs.discord.com/developers/topics/rate-limits,
// learn.microsoft.com/azure/devops/integrate/concepts/rate-limits, 2026-11
var resourceHeaders = []string{"X-Ratelimit-Resource", discordHeader}

const (
	coreResource  = "core"
	discordHeader = "X-Ratelimit-Bucket"
	globalHeader  = "X-Ratelimit-Global"
	// githubHeader is in every response of GitHub, also of GitHub Enterprise Server.
	// docs.github.com/rest/using-the-rest-api/troubleshooting-the-rest-api, 2026-11
	githubHeader = "X-Github-Request-Id"
)

// meaning is what a status or an error code says. The strongest comes first.
type meaning uint8

const (
	brief   meaning = iota + 1 // the caller is too fast, whatever a code says; 0 is nothing
	spent                      // money or a quota is used up
	daily                      // the day of a model is used up
	large                      // the request alone is above the limit, which no wait changes
	blocked                    // the account is too fast, whatever the model
	relayed                    // a provider refuses the server itself, for a model
	loaded                     // the provider has too much load
	slow                       // the caller is too fast
	quota                      // slow with a status of 429, and otherwise spent
	meanings
)

// meant is what follows from a meaning.
var meant = [meanings]struct {
	reason Reason
	scope  Scope
}{
	brief: {Slow, Model}, slow: {Slow, Model}, loaded: {Loaded, Model}, large: {Slow, Request},
	blocked: {Slow, Account}, spent: {Spent, Account}, daily: {Spent, Model}, relayed: {Loaded, Model},
}

// statuses are those with which servers refuse: what a status says alone, what it says with a wait, and
// which meanings of an error it heeds beside spent. One that says something alone heeds all. Otherwise a
// 403 or 400 is of the request, and one of 500 and above may be of one server of many.
var statuses = map[int]struct {
	alone, waits meaning
	heeds        []meaning
}{
	http.StatusTooManyRequests:     {alone: slow, waits: slow},
	statusCapacityExceeded:         {alone: loaded, waits: loaded},
	statusOverloaded:               {alone: loaded, waits: loaded},
	http.StatusPaymentRequired:     {alone: spent, waits: spent},
	http.StatusInternalServerError: {heeds: []meaning{loaded}},
	http.StatusBadGateway:          {waits: loaded, heeds: []meaning{slow, loaded}},
	http.StatusServiceUnavailable:  {waits: loaded, heeds: []meaning{slow, loaded}},
	http.StatusGatewayTimeout:      {waits: loaded, heeds: []meaning{slow, loaded}},
	http.StatusForbidden:           {waits: slow, heeds: []meaning{slow, blocked}}, // GitHub, older APIs of Google
	http.StatusBadRequest:          {heeds: []meaning{slow}},                       // AWS, Linear; Anthropic: no credit
	http.StatusPreconditionFailed:  {},                                             // Fireworks: a suspended account
}

// Statuses without a name in package http.
const (
	statusCapacityExceeded = 498 // Groq, flex tier
	statusOverloaded       = 529 // Anthropic
)

// codes are the values of the codes of a failure, in lower case.
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
	// Codex: openai/codex#43337, earendil-works/pi#4172, 2026-11
	"server_is_overloaded": loaded, "service_unavailable_error": loaded, "usage_limit_reached": spent,
	// Google Cloud Code (google-gemini/gemini-cli#19911, su-kaka/gcli2api#416)
	"model_capacity_exhausted": loaded, "insufficient_g1_credits_balance": spent,
	// developers.cloudflare.com/workers-ai/platform/errors, 2026-11 (diegosouzapw/OmniRoute#6980)
	"3036": spent, "4006": spent, "3040": loaded,
	"1308": spent, // Z.ai, the hours of a plan (continuedev/continue#13195, 2026-11)
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
	// linear.app/developers/rate-limiting, shopify.dev/docs/api/usage/limits,
	// docs.github.com/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api, 2026-11
	"ratelimited": slow, "throttled": slow, "rate_limited": slow,
	// docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html,
	// docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html, 2026-11
	"throttling": slow, "toomanyrequestsexception": slow, "requestlimitexceeded": slow,
	"provisionedthroughputexceededexception": slow, "slowdown": loaded, "serviceunavailable": loaded,
	// developers.hubspot.com/docs/api/usage-details, 2026-11
	"policy daily": spent,
	// docs.stripe.com/error-codes, 2026-11: another request uses the same object
	"lock_timeout": large,
	"card_error":   large, // of the payer, with a status of 402
	// x402-foundation/x402, transports-v1/http.md, 2026-11: the price of a request
	"x402 1": large, "x402 2": large,
	"insufficient_balance": spent, // Venice (veniceai/api-docs#149), Wei-Shaw/sub2api#890
	"accountoverdueerror":  spent, // Volcengine, 2026-11
	"arrearage":            spent, // help.aliyun.com/zh/model-studio/error-code, 2026-11
	// docs.z.ai/api-reference/api-code, 2026-11: also of a model that the plan does not have
	"1113":                     daily,
	"user_weekly_rate_limited": spent,  // github/copilot-cli#2741
	"server_overload":          loaded, // Novita (NousResearch/hermes-agent#106512)
}

// phrases are how error messages begin, in lower case, that tell what no code does. What follows a * may
// stand behind the beginning. With a status of 402, which tells enough of the account, a phrase may stand
// anywhere. Elsewhere servers quote what a user wrote.
var phrases = []struct {
	text string
	meaning
}{
	// docs.github.com/rest/using-the-rest-api/troubleshooting-the-rest-api, 2026-11
	{secondaryLimit, blocked}, {"api rate limit exceeded", blocked},
	{"you have triggered an abuse detection mechanism", blocked}, // GitHub Enterprise Server, before 2021
	// docs.anthropic.com/en/api/errors, 2026-11: an invalid_request_error with a status of 400
	{"your credit balance is too low", spent},
	// anthropics/claude-code#38035, #37594, #8118: the last one is an api_error
	{"you have reached your specified api usage limits", spent},
	{"extra usage is required for long context requests", large}, {"overloaded", loaded},
	// DashScope calls the tokens of a minute so, as OpenAI does a quota (can1357/oh-my-pi#8496)
	{"you exceeded your current quota*error-code#token-limit", brief},
	// Bedrock (Ivy-Interactive/Ivy-Tendril#1756)
	{"too many tokens per day", daily},
	// xAI (continuedev/continue#10373, Anantys-oss/koan#2412, Wei-Shaw/sub2api#4069)
	{"your team *has either used all available credits", spent}, {"you have run out of credits", spent},
	// Mistral (continuedev/continue#6185, BerriAI/litellm#25078)
	{"service tier capacity exceeded", loaded},
	// OpenAI, without a code (waylaidwanderer/node-chatgpt-api#34)
	{"that model is currently overloaded", loaded},
	// kimi.com/code/docs/en/kimi-code/error-reference.html, 2026-11
	{"you've reached your*usage limit", spent}, // also Ollama Cloud, hours (continuedev/continue#9233)
	{"you (*usage limit, ", spent},             // Ollama Cloud (continuedev/continue#11444)
	// MiniMax-AI/MiniMax-M2.7#36, MiniMax-AI/MiniMax-M2#62; the second one has a status of 500
	{"usage limit exceeded", spent}, {"insufficient balance (", spent},
	// Fireworks, with a status of 412 (amd/gaia#3766)
	{"account *is suspended, possibly due to reaching the monthly spending limit", spent},
	// Anthropic (SakanaAI/AI-Scientist#115)
	{"number of request*has exceeded your daily rate limit", daily},
	{"model busy", loaded}, // DeepInfra (truefoundry/models#862)
	// OpenAI (vanderschaarlab/climb#1); Groq says so with a status of 413
	{"request too large for", large},
	// OpenRouter, with a status of 402 (can1357/oh-my-pi#9569, continuedev/continue#11227,
	// cline/cline#940; the second one anomalyco/opencode#12219)
	{"fewer max_tokens", large}, {"can only afford 0.", spent},
	{"prompt tokens limit exceeded", large}, {"max_tokens limit exceeded", large},
	{"more credits are required to run this request", large}, // tailcallhq/forgecode#571
	{"provider returned error", relayed},                     // also with a status of 402
	// openrouter.ai/docs/api-reference/limits, 2026-11
	{"rate limit exceeded: free-models-per-", blocked},
}

const secondaryLimit = "you have exceeded a secondary rate limit"

// days are parts of a quota's id or of a message, in lower case, that name a day.
var days = []string{
	"perday",       // quotaId of google.rpc.QuotaFailure: ai.google.dev/gemini-api/docs/rate-limits, 2026-11
	"per day (",    // OpenAI and Groq: "on requests per day (RPD)", 2026-11
	"-per-day",     // OpenRouter, as above
	"bymodelbyday", // GitHub Models, 2026-11
}

// waitHeaders are the headers that state a wait, in the order in which they count.
var waitHeaders = []struct {
	name, unit string
}{
	{"Retry-After-Ms", "ms"},      // OpenAI and Azure
	{"X-Ms-Retry-After-Ms", "ms"}, // Azure, such as Cosmos DB
	{"Retry-After", ""},
	{"X-Rate-Limit-Retry-After-Seconds", ""}, // bucket4j-spring-boot-starter, 2026-11
	{"X-Ratelimit-After", ""},                // tower_governor (userFRM/ThetaDataDx#645, 2026-11)
}

// secondary is the wait that GitHub asks for after a secondary limit without any header.
// docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api, 2026-11
const secondary = time.Minute

// invitations come before the wait in a message: OpenAI and Groq, Gemini, and Azure and GitHub Models
// whose unit is a word of its own.
var invitations = []string{"try again in ", "retry in ", "retry after ", "please wait "}

// challenges are headers of a 402 that states the price of the request: x402 (transports-v2/http.md), L402
// and other schemes of payment, 2026-11.
var challenges = []string{"Payment-Required", "Www-Authenticate"}
