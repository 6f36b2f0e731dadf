package main

import (
	"errors"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/inspect"
)

// advices say what to do about the replies of Redis, by what is in them.
var advices = []struct{ reply, words string }{
	{"NOAUTH", "put the user and the password into the URL: redis://USER:PASSWORD@HOST:PORT"},
	{
		"WRONGPASS",
		"check the user and the password in the URL; percent-encode what is special in a URL",
	},
	{"WRONGTYPE", "another program uses keys of this prefix: is --prefix that of the application?"},
	{"READONLY", "connect to the primary, or to the sentinels: redis://HOST:26379?master_name=NAME"},
	{"CROSSSLOT", "try --topology cluster, or --topology proxy if a proxy hides the cluster"},
	{"MOVED", "try --topology cluster"},
	{"CLUSTERDOWN", "the cluster lacks the servers of some slots: see CLUSTER INFO"},
	{"cluster support disabled", "the server is no cluster: try --topology server"},
}

// adviceOn says what to do about an error. It is empty if there is nothing to say.
func adviceOn(err error) string {
	if grant := inspect.Advice(err); grant != "" {
		return grant
	}
	text := err.Error()
	if inspect.IsRefusal(text) {
		return "ACL LOG on the server names what it refused; docs/redis.md has the rights of each feature"
	}
	var reply redis.Error
	if errors.As(err, &reply) {
		for _, a := range advices {
			if strings.Contains(reply.Error(), a.reply) {
				return a.words
			}
		}
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: set --redis or $" + redisVariable + ", or start Redis"
	case strings.Contains(text, "no such host"):
		return "the name of the host in --redis or $" + redisVariable + " is not known"
	case strings.Contains(text, "no answer within"):
		return "try a longer --timeout; a server without TLS does not answer rediss:// either"
	case strings.Contains(text, "certificate"):
		return "give the file of the authority's certificate with --tls-ca"
	}
	return ""
}
