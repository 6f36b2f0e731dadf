package inspect

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// probes are calls that show whether the user of Redis may run the commands of scripts on a key K: a
// script may need several, and Redis before 7.2 does not say which one it refuses. They are those of
// docs/redis.md that decisions, slots and overrides need.
const probes = `get K,mget K,set K 0 PX 1000,del K,getrange K 0 0,setrange K 0 0,pexpire K 1000,time,` +
	`hmget K f,hget K f,hset K f 0,hdel K f,zadd K 0 m,zrem K m,zscore K m,zrange K 0 0,` +
	`zrangebyscore K 0 0,zrangebylex K - +,zlexcount K - +,pttl K,publish K 0,hgetall K`

const overrideProbes = `get K,set K 0 PX 1000,del K,pttl K,pexpire K 1000,time,` +
	`lpush K 0,ltrim K 0 0,lindex K 0,lrange K 0 0`

// tryProbes returns the commands that Redis refuses. It leaves no key behind: none is made unless it
// can be deleted.
var tryProbes = redis.NewScript(`
local refused = {}
local function try(words)
  local reply = redis.pcall(unpack(words))
  local text = type(reply) == 'table' and reply.err
  if text and (string.find(text, 'NOPERM', 1, true) or string.find(text, 'permissions', 1, true)
      or string.find(text, 'user executing the script', 1, true)) then
    refused[#refused + 1] = words[1]
    return false
  end
  return true
end
if not try({'del', KEYS[1]}) then
  return refused
end
for probe in string.gmatch(ARGV[1], '[^,]+') do
  local words = {}
  for word in string.gmatch(probe, '%S+') do
    words[#words + 1] = word == 'K' and KEYS[1] or word
  end
  if words[1] ~= 'del' then
    try(words)
  end
  redis.call('del', KEYS[1])
end
return refused
`)

// rightsTimeout bounds the search for missing rights.
const rightsTimeout = 2 * time.Second

// explain is Explain for an error that Redis may have left unclear: it asks which rights are missing.
func (i *Inspector) explain(ctx context.Context, err error, probes string) error {
	if err == nil || !isRefusal(err) || i.hub.Client == nil {
		return Explain(err)
	}
	user := userOf(i.hub.Client)
	if e := new(explained); errors.As(Explain(err), &e) && e.rights != "" {
		return &explained{e.words, e.rights, cmp.Or(e.user, user), e.err}
	}
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	key := i.hub.Prefix + "{ping}:rights"
	refused, fault := tryProbes.Eval(ctx, i.hub.Client, []string{key}, probes).StringSlice()
	if fault != nil || len(refused) == 0 {
		return Explain(err)
	}
	rights := "+" + strings.Join(refused, " +")
	return &explained{"the user of Redis lacks the rights " + rights, rights, user, err}
}

// userOf returns the name by which a client logs in, or an empty text if it is not known.
func userOf(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().Username
	case *redis.ClusterClient:
		return c.Options().Username
	}
	return ""
}

// isRefusal reports whether Redis refuses a command because of its ACL.
func isRefusal(err error) bool {
	for _, words := range []string{"NOPERM", "ACL failure in script", "The user executing the script"} {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}
