module github.com/headgate/headgate/_examples/llmchat

go 1.25.0

require (
	github.com/headgate/headgate v0.0.0
	github.com/redis/go-redis/v9 v9.19.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
)

replace github.com/headgate/headgate => ../..
