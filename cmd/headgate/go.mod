module github.com/headgate/headgate/cmd/headgate

go 1.25.0

require (
	github.com/headgate/headgate v0.1.0
	github.com/redis/go-redis/v9 v9.19.0
	github.com/spf13/cobra v1.10.2
	github.com/tidwall/gjson v1.20.2
	golang.org/x/term v0.45.0
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/creack/pty v1.1.24
	github.com/goccy/go-yaml v1.19.2 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.3.0 // indirect
	github.com/twmb/murmur3 v1.1.8 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/mod v0.31.0
	golang.org/x/sys v0.47.0 // indirect
)
