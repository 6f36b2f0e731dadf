// Package filters compares Bloom filters on Redis.
package filters

import (
	"context"
	"fmt"
	"strconv"
	"time"

	zerobloom "github.com/zeromicro/go-zero/core/bloom"
	zeroredis "github.com/zeromicro/go-zero/core/stores/redis"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/bloom"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
	"github.com/headgate/headgate/lab/bench/internal/server"
)

// Run measures asking for items that are there, whose bits all have to be looked at, by each number
// of callers. The error also tells where an item was missing; the table is there then all the same.
func Run(ctx context.Context, plan measure.Plan, s *server.Server) ([]report.Table, error) {
	client := s.Client()
	defer func() { _ = client.Close() }()
	gate, err := core.NewRedis(client, core.Config{})
	if err != nil {
		return nil, fmt.Errorf("make the gate: %w", err)
	}
	defer func() { _ = gate.Close(context.Background()) }() // nothing is under way any more
	items := make([]string, plan.Spread())
	for i := range items {
		items[i] = "item-" + strconv.Itoa(i)
	}
	contenders, err := contenders(ctx, gate, s.Addr, items)
	if err != nil {
		return nil, err
	}
	ping := func(ctx context.Context, _, _ int) (bool, error) {
		err := client.Ping(ctx).Err()
		return err == nil, err
	}
	driver := &measure.Driver{Meter: s.Usage}
	t := report.Table{
		Title: fmt.Sprintf("Items of %s, x the PING rate", report.Count(float64(len(items)))),
		Note: "Answers a second, over the PINGs a second of as many callers. All items are in " +
			"the filters. Rates of false positives are " +
			"1 %, and 0.0067 % to be compared with go-zero's, which cannot add and test in one step.",
		Columns: []string{""},
	}
	for _, workers := range plan.Workers {
		t.Columns = append(t.Columns, "@"+strconv.Itoa(workers))
	}
	t.Columns = append(t.Columns, "p50, 1 caller", "allocs", fmt.Sprintf("CPU @%d", plan.Busy()))
	var all [][]measure.Result
	var wrong error
	for _, workers := range plan.Workers {
		load := measure.Load{Workers: workers, Keys: len(items), Slice: plan.Slice}
		results, err := driver.Rounds(ctx, plan.Rounds, load, ping, contenders)
		if err != nil {
			return nil, err
		}
		for _, r := range results {
			if _, missing, failed := r.Answered(); r.Kind == measure.Ours && missing+failed > 0 {
				wrong = fmt.Errorf("%s, %d callers: %d items are missing, %d calls failed", r.Name, workers, missing, failed)
			}
		}
		all = append(all, results)
	}
	for i, c := range all[0] {
		row := []string{c.Label()}
		for _, of := range all {
			row = append(row, report.Number(of[i].ToPing(measure.Rate)))
		}
		t.Add(append(row, report.Number(c.Own(measure.P50)), report.Number(c.Own(measure.Mallocs)),
			report.Number(all[2][i].Own(measure.CPU)))...)
	}
	return []report.Table{t}, wrong
}

func contenders(ctx context.Context, gate *core.Gate, addr string, items []string) ([]measure.Contender, error) {
	filter := func(name string, rate float64, window time.Duration) (*bloom.Filter, error) {
		f, err := bloom.New(gate, bloom.Config{
			Name: name, Items: int64(len(items)), FalsePositives: rate, Window: window,
		})
		if err == nil {
			err = f.Add(ctx, items...)
		}
		if err != nil {
			return nil, fmt.Errorf("fill the filter: %w", err)
		}
		return f, nil
	}
	common, err := filter("common", 0.01, 0)
	if err != nil {
		return nil, err
	}
	rare, err := filter("rare", 0.000067, 0)
	if err != nil {
		return nil, err
	}
	aging, err := filter("aging", 0.01, 24*time.Hour)
	if err != nil {
		return nil, err
	}
	zero, err := zeroredis.NewRedis(zeroredis.RedisConf{
		Host: addr, Type: zeroredis.NodeType, Protocol: 3, MaintNotifications: "disabled", PingTimeout: time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("make go-zero's client: %w", err)
	}
	theirs := zerobloom.New(zero, "zero-bloom", uint(20*len(items)))
	for _, item := range items {
		if err := theirs.AddCtx(ctx, []byte(item)); err != nil {
			return nil, fmt.Errorf("fill go-zero's filter: %w", err)
		}
	}
	add := func(f *bloom.Filter) measure.Do {
		return func(ctx context.Context, _, key int) (bool, error) {
			isNew, err := f.TestAndAdd(ctx, items[key])
			return err == nil && !isNew[0], err
		}
	}
	test := func(f *bloom.Filter) measure.Do {
		return func(ctx context.Context, _, key int) (bool, error) {
			found, err := f.Test(ctx, items[key])
			return err == nil && found[0], err
		}
	}
	return []measure.Contender{
		{Name: "Filter.TestAndAdd", Kind: measure.Ours, Do: add(common)},
		{Name: "Filter.TestAndAdd, with a window", Kind: measure.Ours, Do: add(aging)},
		{Name: "Filter.Test", Kind: measure.Ours, Do: test(common)},
		{Name: "Filter.Test, 0.0067 %", Kind: measure.Ours, Do: test(rare)},
		{Name: "go-zero bloom.Exists", Kind: measure.Peer, Do: func(ctx context.Context, _, key int) (bool, error) {
			return theirs.ExistsCtx(ctx, []byte(items[key]))
		}},
		{Name: "go-zero bloom.Add", Kind: measure.Peer, Do: func(ctx context.Context, _, key int) (bool, error) {
			err := theirs.AddCtx(ctx, []byte(items[key]))
			return err == nil, err
		}},
	}, nil
}
