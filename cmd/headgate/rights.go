package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
}

var features = []feature{
	{"limits", "ping eval evalsha time get mget set del getrange setrange pexpire pttl"},
	{"semaphores, mutexes, once, holds, quotas", "hmget hget hset hdel zadd zrem zscore zrange " +
		"zrangebyscore zrangebylex zlexcount publish subscribe"},
	{"filters", "getbit setbit bitcount hmget hset hdel"},
	{"lists of blocked keys", "scan"},
	{"quotas with adjustments or a ledger", "hgetall"},
	{"overrides of plans", "eval time get set del pttl pexpire lpush ltrim lindex lrange"},
	{"headgate show, why and reset", "scan pttl get"},
}

// rights finds out which commands a user may not run on keys of a prefix, at one server.
type rights struct {
	client *redis.Client
	key    string
	// wrong are words of Redis by command.
	wrong map[string]string
}

// find fills in the commands that are refused. Its error is that of a server that does not answer.
func (r *rights) find(ctx context.Context) error {
	r.wrong = make(map[string]string)
	if err := r.client.Ping(ctx).Err(); err != nil && !inspect.IsRefusal(err.Error()) {
		return err
	}
	if err := r.try(ctx, "ping set del pexpire"); err != nil {
		return err
	}
	if r.wrong["del"] == "" || r.wrong["pexpire"] == "" { // otherwise the key could stay for ever
		var commands strings.Builder
		for _, f := range features {
			commands.WriteString(f.commands + " ")
		}
		if err := r.try(ctx, commands.String()+"del pexpire"); err != nil {
			return err
		}
	}
	return r.subscribe(ctx)
}

// attempts are calls that show whether the user of Redis may run a command on a key K or a channel C.
// Redis looks at the rights before it looks at the type of the key.
var attempts = map[string]string{
	"ping": "", "eval": "return{} 1 K", "evalsha": strings.Repeat("0", 40) + " 1 K",
	"get": "K", "mget": "K", "set": "K 0 PX 1000", "del": "K", "getrange": "K 0 0", "setrange": "K 0 0",
	"pexpire": "K 1000", "pttl": "K", "time": "", "scan": "0 COUNT 1",
	"hmget": "K f", "hget": "K f", "hset": "K f 0", "hdel": "K f", "hgetall": "K",
	"zadd": "K 0 m", "zrem": "K m", "zscore": "K m", "zrange": "K 0 0", "zrangebyscore": "K 0 0",
	"zrangebylex": "K - +", "zlexcount": "K - +",
	"lpush": "K 0", "ltrim": "K 0 0", "lindex": "K 0", "lrange": "K 0 0",
	"getbit": "K 0", "setbit": "K 0 0", "bitcount": "K", "publish": "C 0",
}

// try makes the attempts of commands in one round trip. It leaves out those that have none.
func (r *rights) try(ctx context.Context, commands string) error {
	pipe := r.client.Pipeline()
	names := map[string]string{"K": r.key, "C": r.channel()}
	for command := range strings.FieldsSeq(commands) {
		rest, ok := attempts[command]
		if !ok {
			continue
		}
		args := []any{command}
		for word := range strings.FieldsSeq(rest) {
			args = append(args, cmp.Or(names[word], word))
		}
		pipe.Do(ctx, args...)
	}
	made, err := pipe.Exec(ctx)
	if err != nil && !errors.As(err, new(redis.Error)) {
		return err
	}
	for _, one := range made {
		_ = r.note(one.Name(), one.Err())
	}
	return nil
}

func (r *rights) channel() string { return r.key + ":wake" }

// note notes a refusal. It returns the error of a server that does not answer: a command that is
// permitted may fail, as on a key of another type.
func (r *rights) note(command string, err error) error {
	if !errors.As(err, new(redis.Error)) {
		return err
	}
	if inspect.IsRefusal(err.Error()) {
		r.wrong[command] = err.Error()
	}
	return nil
}

// subscribe tries to subscribe, on a connection of its own.
func (r *rights) subscribe(ctx context.Context) error {
	p := r.client.Subscribe(ctx)
	defer func() { _ = p.Close() }()
	err := p.Subscribe(ctx, r.channel())
	if err == nil {
		_, err = p.Receive(ctx)
	}
	return r.note("subscribe", err)
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
