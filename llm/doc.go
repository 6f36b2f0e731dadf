// Package llm applies budgets of tokens and of money to requests to language models, in front of
// any server that speaks one of the formats of OpenAI, Anthropic, Gemini, Bedrock, Cohere or Ollama.
//
// A Meter reads what a request asks for and estimates what it will use. It spends the estimate
// under every budget, together with the request limits and the slot of a nethttp.Guard: all or
// nothing, in one round trip. It reads the usage from the passing response, and settles the budgets
// with it.
//
//	meter, err := llm.New(llm.Config{
//		Guard: nethttp.Config{Gate: gate},
//		Budgets: []llm.Budget{{
//			Policy: core.Must(core.NewPolicy(core.PolicyConfig{
//				Name: "tokens", Unit: core.UnitTokens, Algorithm: core.PerMinute(100_000),
//				Hold: 30 * time.Second,
//			})),
//			Key: tenant,
//		}},
//	})
//	...
//	http.Handle("/v1/", meter.Handler(httputil.NewSingleHostReverseProxy(upstream)))
//
// The handler behind a Meter calls the model, or is a reverse proxy in front of one. In gin use
// gin.WrapH(meter.Handler(h)), in echo echo.WrapMiddleware(meter.Handler), in chi
// r.Use(meter.Handler).
package llm
