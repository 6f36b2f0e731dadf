package inspect

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// attempts are calls that show whether the user of Redis may run a command on a key K or a channel
// C: a script may need several commands, and Redis before 7.2 does not say which one it refuses.
var attempts = map[string]string{
	"get": "K", "mget": "K", "set": "K 0 PX 1000", "del": "K", "getrange": "K 0 0", "setrange": "K 0 0",
	"pexpire": "K 1000", "pttl": "K", "time": "", "scan": "0 COUNT 1",
	"hmget": "K f", "hget": "K f", "hset": "K f 0", "hdel": "K f", "hgetall": "K",
	"zadd": "K 0 m", "zrem": "K m", "zscore": "K m", "zrange": "K 0 0", "zrangebyscore": "K 0 0",
	"zrangebylex": "K - +", "zlexcount": "K - +",
	"lpush": "K 0", "ltrim": "K 0 0", "lindex": "K 0", "lrange": "K 0 0",
	"getbit": "K 0", "setbit": "K 0 0", "bitcount": "K", "publish": "C 0", "spublish": "C 0",
}

// These are the commands of docs/redis.md that decisions and slots need, and those of overrides.
const (
	stateCommands = "get mget set del getrange setrange pexpire time hmget hget hset hdel zadd zrem zscore zrange " +
		"zrangebyscore zrangebylex zlexcount pttl publish hgetall"
	overrideCommands = "get set del pttl pexpire time lpush ltrim lindex lrange"
)

// tryCommands makes the attempts of its arguments, and returns the errors by which Redis refuses
// some: command, error, and so on. The key is gone afterwards, and expires if it cannot be deleted.
var tryCommands = redis.NewScript(`
local refused = {}
for _, attempt in ipairs(ARGV) do
  local call = {}
  for word in string.gmatch(attempt, '%S+') do
    call[#call + 1] = word == 'K' and KEYS[1] or word == 'C' and KEYS[1] .. ':wake' or word
  end
  redis.pcall('DEL', KEYS[1])
  local reply = redis.pcall(unpack(call))
  redis.pcall('PEXPIRE', KEYS[1], 1000)
  if type(reply) == 'table' and reply.err then
    refused[#refused + 1] = call[1]
    refused[#refused + 1] = reply.err
  end
end
redis.pcall('DEL', KEYS[1])
return refused
`)

// Refused returns those of the commands that the user of Redis may not run on a key, with the words
// of Redis. Where neither DEL nor PEXPIRE is permitted it tries no others: the key could stay for
// ever. It leaves out commands that are not made by scripts.
func Refused(ctx context.Context, client redis.Scripter, key, commands string) (map[string]string, error) {
	words := make(map[string]string)
	for _, commands := range []string{"set del pexpire", commands} {
		var args []any
		for command := range strings.FieldsSeq(commands) {
			if rest, ok := attempts[command]; ok {
				args = append(args, command+" "+rest)
			}
		}
		refused, err := tryCommands.Eval(ctx, client, []string{key}, args...).StringSlice()
		if err != nil {
			return words, err
		}
		for i := 0; i+1 < len(refused); i += 2 {
			if IsRefusal(refused[i+1]) { // a permitted command may fail, as on a key of another type
				words[refused[i]] = refused[i+1]
			}
		}
		if words["del"] != "" && words["pexpire"] != "" {
			break
		}
	}
	return words, nil
}

// rightsTimeout bounds the search for missing rights.
const rightsTimeout = 2 * time.Second

// explain is Explain for an error that Redis may have left unclear: it asks which of the commands
// are refused.
func (i *Inspector) explain(ctx context.Context, err error, commands string) error {
	client, ok := i.hub.Client.(redis.UniversalClient)
	if err == nil || !IsRefusal(err.Error()) || !ok {
		return Explain(err)
	}
	user := userOf(client)
	if e := new(explained); errors.As(Explain(err), &e) && e.rights != "" {
		return &explained{e.words, e.rights, cmp.Or(e.user, user), e.err}
	}
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	key := i.hub.Prefix + "{ping}:rights"
	words, fault := Refused(ctx, client, key, commands)
	var refused []string
	for command := range strings.FieldsSeq(commands) {
		if words[command] != "" {
			refused = append(refused, command)
		}
	}
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

// IsRefusal reports whether Redis refuses a command because of its ACL, by the words of its error.
func IsRefusal(text string) bool {
	for _, words := range []string{
		"NOPERM", "ACL failure in script", "The user executing the script", "no permissions",
	} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}
