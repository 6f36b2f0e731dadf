package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// feature is something of Headgate that needs rights. docs/redis.md has the same list.
type feature struct {
	name     string
	commands string
	cluster  bool // on a cluster alone
}

var features = []feature{
	{"limits", "ping eval evalsha time get mget set del getrange setrange pexpire", false},
	{"semaphores, mutexes, once, holds, quotas", "hmget hget hset hdel zadd zrem zscore zrange " +
		"zrangebyscore zrangebylex zlexcount pttl publish subscribe", false},
	{"semaphores on a cluster", "spublish ssubscribe sunsubscribe", true},
	{"filters", "getbit setbit bitcount hmget hset hdel", false},
	{"lists of blocked keys", "scan", false},
	{"quotas with adjustments or a ledger", "hgetall", false},
	{"overrides of plans", "eval time get set del pttl pexpire lpush ltrim lindex lrange", false},
	{"headgate show and watch", "scan type pttl get getrange hgetall zrange time", false},
}

// attempts are calls that show whether a command is permitted on a key. A call that a script may
// not make is tried apart.
var attempts = map[string][]string{
	"time": {}, "get": {"K"}, "mget": {"K"}, "set": {"K", "0", "PX", "1000"}, "del": {"K"},
	"getrange": {"K", "0", "0"}, "setrange": {"K", "0", "0"}, "pexpire": {"K", "1000"},
	"hmget": {"K", "f"}, "hget": {"K", "f"}, "hset": {"K", "f", "0"}, "hdel": {"K", "f"},
	"zadd": {"K", "0", "m"}, "zrem": {"K", "m"}, "zscore": {"K", "m"}, "zrange": {"K", "0", "0"},
	"zrangebyscore": {"K", "0", "0"}, "zrangebylex": {"K", "-", "+"}, "zlexcount": {"K", "-", "+"},
	"pttl": {"K"}, "publish": {"C", "0"}, "spublish": {"C", "0"}, "getbit": {"K", "0"},
	"setbit": {"K", "0", "0"}, "bitcount": {"K"}, "scan": {"0", "COUNT", "1"}, "hgetall": {"K"},
	"lpush": {"K", "0"}, "ltrim": {"K", "0", "0"}, "lindex": {"K", "0"}, "lrange": {"K", "0", "0"},
	"type": {"K"},
}

// tryRights runs each command that its arguments name, and returns the errors by which Redis
// refuses some: command, error, and so on. The key is gone afterwards, and expires if it cannot be
// deleted. A command that is permitted may still fail, as on a key of another type.
var tryRights = redis.NewScript(`
local refused, at = {}, 1
while at <= #ARGV do
  local n = tonumber(ARGV[at + 1])
  local call = {ARGV[at]}
  for i = 1, n do
    call[i + 1] = ARGV[at + 1 + i]
  end
  redis.pcall('DEL', KEYS[1])
  local reply = redis.pcall(unpack(call))
  redis.pcall('PEXPIRE', KEYS[1], 1000)
  if type(reply) == 'table' and reply.err then
    refused[#refused + 1] = ARGV[at]
    refused[#refused + 1] = reply.err
  end
  at = at + 2 + n
end
redis.pcall('DEL', KEYS[1])
return refused
`)

// rights finds out which commands a user may not run on keys of a prefix, at one server.
type rights struct {
	client *redis.Client
	key    string
	// wrong are words of Redis by command.
	wrong map[string]string
}

// isRefusal reports whether Redis refuses a command because of its ACL.
func isRefusal(text string) bool {
	for _, words := range []string{
		"NOPERM", "ACL failure in script", "The user executing the script", "no permissions",
	} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// find fills in the commands that are refused. Its error is that of a server that does not answer.
func (r *rights) find(ctx context.Context, isCluster bool) error {
	r.wrong = make(map[string]string)
	if err := r.note("ping", r.client.Ping(ctx).Err()); err != nil {
		return err
	}
	err := r.client.EvalSha(ctx, strings.Repeat("0", 40), []string{r.key}).Err()
	if err := r.note("evalsha", err); err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return err
	}
	for _, args := range r.batches() {
		refused, err := r.run(ctx, args)
		if err := r.note("eval", err); err != nil {
			return err
		}
		for i := 0; i+1 < len(refused); i += 2 {
			if isRefusal(refused[i+1]) {
				r.wrong[refused[i]] = refused[i+1]
			}
		}
	}
	channel := r.key + ":wake"
	if err := r.note("subscribe", r.listen(ctx, (*redis.PubSub).Subscribe, channel)); err != nil {
		return err
	}
	if !isCluster {
		return nil
	}
	if err := r.note("ssubscribe", r.listen(ctx, (*redis.PubSub).SSubscribe, channel)); err != nil {
		return err
	}
	return r.note("sunsubscribe", r.listen(ctx, (*redis.PubSub).SUnsubscribe, channel))
}

// note notes a refusal, and returns any other error except that another server has the key.
func (r *rights) note(command string, err error) error {
	if redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "CROSSSLOT") {
		return nil
	}
	if err != nil && isRefusal(err.Error()) {
		r.wrong[command] = err.Error()
		return nil
	}
	return err
}

// batches returns the arguments of tryRights. The first has the commands without which a key could
// stay for ever.
func (r *rights) batches() [][]any {
	first := []string{"set", "del", "pexpire"}
	var rest []string
	for command := range attempts {
		if !slices.Contains(first, command) {
			rest = append(rest, command)
		}
	}
	slices.Sort(rest)
	var all [][]any
	for _, commands := range [][]string{first, rest} {
		var args []any
		for _, command := range commands {
			args = append(args, command, len(attempts[command]))
			for _, a := range attempts[command] {
				switch a {
				case "K":
					a = r.key
				case "C":
					a = r.key + ":wake"
				}
				args = append(args, a)
			}
		}
		all = append(all, args)
	}
	return all
}

// run runs tryRights, unless a key could stay for ever.
func (r *rights) run(ctx context.Context, args []any) ([]string, error) {
	if r.wrong["eval"] != "" || r.wrong["del"] != "" && r.wrong["pexpire"] != "" {
		return nil, nil
	}
	refused, err := tryRights.Eval(ctx, r.client, []string{r.key}, args...).StringSlice()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return refused, err
}

// listen runs a command on a connection of its own that subscribes.
func (r *rights) listen(
	ctx context.Context, command func(*redis.PubSub, context.Context, ...string) error, channel string,
) error {
	p := r.client.Subscribe(ctx)
	defer func() { _ = p.Close() }()
	if err := command(p, ctx, channel); err != nil {
		return err
	}
	_, err := p.Receive(ctx)
	return err
}

// missing returns the commands of a feature that are refused.
func (r *rights) missing(f feature) (commands []string) {
	for command := range strings.FieldsSeq(f.commands) {
		if r.wrong[command] != "" {
			commands = append(commands, command)
		}
	}
	return commands
}

// Redis refuses a command, a key or a channel. These find the latter two in its words.
var (
	keyRefusal     = regexp.MustCompile(`access (a key|one of the keys)`)
	channelRefusal = regexp.MustCompile(`access (a channel|one of the channels)`)
)

// grant returns the words that ACL SETUSER needs.
func (r *rights) grant(commands []string, prefix string) string {
	var all []string
	for _, command := range commands {
		word := "+" + command
		switch text := r.wrong[command]; {
		case keyRefusal.MatchString(text):
			word = fmt.Sprintf("~%s:*", prefix)
		case channelRefusal.MatchString(text):
			word = fmt.Sprintf("&%s:*", prefix)
		}
		if !slices.Contains(all, word) {
			all = append(all, word)
		}
	}
	return strings.Join(all, " ")
}
