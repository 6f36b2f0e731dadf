package trips

import (
	"errors"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

const permissions = "the user lacks a permission: a Gate needs " +
	"+ping +eval +evalsha +time +get +mget +set +del +getrange +setrange +pexpire on its keys, " +
	"and more for semaphores, filters, holds and quotas"

const clusterAdvice = "the server is part of a cluster, and the Gate takes it for one server: use " +
	"redis.NewClusterClient, or core.TopologyCluster if a proxy hides the cluster"

// causes explains the replies of Redis by what is in them.
var causes = []struct{ reply, words string }{
	{"NOAUTH", "Redis wants a password, and the client has none"},
	{"unauthenticated", "Redis wants a password, and the client has none or an old one"},
	{"WRONGPASS", "Redis does not accept the user name or password"},
	{"ERR AUTH ", "Redis does not accept the user name or password"},
	{"NOPERM", permissions},
	{"The user executing the script", permissions},
	{"ACL failure in script", permissions},
	{"WRONGTYPE", "a key of the Gate holds something else: choose another Config.Prefix"},
	{"READONLY", "the server is a replica: the client must connect to the primary"},
	{"LOADING", "Redis is loading its data"},
	{"MASTERDOWN", "the server is a replica that has lost its primary"},
	{"CLUSTERDOWN", "the cluster does not serve all slots"},
	{"OOM", "Redis is out of memory (maxmemory)"},
	{"NOREPLICAS", "too few replicas are connected (min-replicas-to-write)"},
	{"MISCONF", "Redis cannot save to disk and rejects writes"},
	{"CROSSSLOT", clusterAdvice},
	{"MOVED", "another node of the cluster has the key: use redis.NewClusterClient"},
}

// Explain says in words what an error of Redis means.
func Explain(err error) string {
	var reply redis.Error
	switch {
	case errors.As(err, &reply):
		for _, c := range causes {
			if strings.Contains(reply.Error(), c.reply) {
				return c.words
			}
		}
		if Classify(err) == Misconfigured {
			return "Redis rejects the command"
		}
		return "Redis, or a proxy in front of it, answers with an error"
	case errors.Is(err, ErrReply):
		return "the answer is not one of Redis: look for a proxy in front of it"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens at the address"
	case timedOut(err):
		return "Redis does not answer in time"
	case errors.Is(err, redis.ErrClosed):
		return "the client is closed"
	}
	return "Redis cannot be reached"
}
