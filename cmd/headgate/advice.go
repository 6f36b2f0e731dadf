package main

import (
	"errors"
	"strings"
	"syscall"

	"github.com/headgate/headgate/internal/inspect"
)

const refusal = "ACL LOG on the server names what it refused; docs/redis.md has the rights of each feature"

// advices say what to do about errors of Redis and of the connection to it, by what is in them.
var advices = []struct{ found, words string }{
	{"NOPERM", refusal},
	{"ACL failure in script", refusal},
	{"The user executing the script", refusal},
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
	{"no such host", "the name of the host in --redis or $" + redisVariable + " is not known"},
	{"no answer within", "try a longer --timeout; a server without TLS does not answer rediss:// either"},
	{"certificate", "give the file of the authority's certificate with --tls-ca"},
}

// adviceOn says what to do about an error. It is empty if there is nothing to say.
func adviceOn(err error) string {
	switch code := codeOf(err); {
	case code != exitOutage && code != exitMisconfigured:
		return ""
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: set --redis or $" + redisVariable + ", or start Redis"
	}
	if grant := inspect.Advice(err); grant != "" {
		return grant
	}
	for _, a := range advices {
		if strings.Contains(err.Error(), a.found) {
			return a.words
		}
	}
	return ""
}
