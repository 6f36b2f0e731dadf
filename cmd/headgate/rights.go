package main

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/inspect"
)

// feature is something of Headgate that needs rights. docs/redis.md has the same list.
type feature struct {
	name     string
	commands string
	cluster  bool // on a cluster alone
}

var features = []feature{
	{"limits", "ping eval evalsha time get mget set del getrange setrange pexpire pttl", false},
	{"semaphores, mutexes, once, holds, quotas", "hmget hget hset hdel zadd zrem zscore zrange " +
		"zrangebyscore zrangebylex zlexcount publish subscribe", false},
	{"semaphores on a cluster", "spublish ssubscribe sunsubscribe", true},
	{"filters", "getbit setbit bitcount hmget hset hdel", false},
	{"lists of blocked keys", "scan", false},
	{"quotas with adjustments or a ledger", "hgetall", false},
	{"overrides of plans", "eval time get set del pttl pexpire lpush ltrim lindex lrange", false},
	{"headgate show, why and reset", "scan pttl get", false},
}

// rights finds out which commands a user may not run on keys of a prefix, at one server.
type rights struct {
	client *redis.Client
	key    string
	// wrong are words of Redis by command.
	wrong map[string]string
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
	var commands strings.Builder
	for _, f := range features {
		commands.WriteString(f.commands + " ")
	}
	refused, err := refusals(ctx, r.client, r.key, commands.String())
	maps.Copy(r.wrong, refused)
	if err := r.note("eval", err); err != nil {
		return err
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
	if err != nil && inspect.IsRefusal(err.Error()) {
		r.wrong[command] = err.Error()
		return nil
	}
	return err
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

// refusals returns those of the commands that the user of Redis may not run on a key, with the words
// of Redis. Where neither DEL nor PEXPIRE is permitted it tries no others: the key could stay for
// ever. It leaves out commands that are not made by scripts.
func refusals(ctx context.Context, client redis.Scripter, key, commands string) (map[string]string, error) {
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
			if inspect.IsRefusal(refused[i+1]) { // a permitted command may fail, as on a key of another type
				words[refused[i]] = refused[i+1]
			}
		}
		if words["del"] != "" && words["pexpire"] != "" {
			break
		}
	}
	return words, nil
}
