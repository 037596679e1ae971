package engine

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/backend/remote/link"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

var (
	machinesFlag = flag.String("machines", "2,4", "machines of BenchmarkMachines, with commas")
	nodesFlag    = flag.String("nodes", "", "addresses of nodes for BenchmarkMachines, with commas; none: nodes in this process")
	tokenFlag    = flag.String("node-token", "", "file of the token of -nodes")
	serveFlag    = flag.String("serve", "", "address at which BenchmarkMachines is a node for another process")
)

// BenchmarkMachines measures a generated model, or a file, on a leader and nodes with one thread each. depth: passes of one sequence of 1, 2
// and 4 rows; share is the time of one device over that of all. group: gain is the throughput with a round in flight for each machine over
// one round with all sequences, gain-group over one with those of a group, chosen that of the engine's own number over the better. What is
// compared alternates, and figures are medians.
func BenchmarkMachines(b *testing.B) {
	if *serveFlag != "" {
		serveNode(b)
	}
	for shape := range strings.SplitSeq(*forcedShapes, ",") {
		for machines := range strings.SplitSeq(*machinesFlag, ",") {
			n := 0
			if _, err := fmt.Sscan(machines, &n); err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("shape=%s/machines=%d", shape, n), func(b *testing.B) { benchmarkMachines(b, shape, n) })
		}
	}
}

func benchmarkMachines(b *testing.B, shape string, machines int) {
	b.Helper()
	var delay atomic.Int64
	list := []backend.Backend{backendtest.CPU(b, backend.Options{Threads: 1})}
	for i := range machines - 1 {
		list = append(list, benchmarkNode(b, i, &delay))
	}
	layers, output := 24, 8 // layers, and how many the output matrix is as large as
	if shape == "9b" {
		layers, output = 32, 5
	}
	first := max((layers+output)/machines-output, 0) // layers of the leader
	dev, err := split.New(func(p backend.Part) int {
		if p.Kind != backend.LayerPart || p.Layer < first {
			return 0
		}
		return 1 + (p.Layer-first)*(machines-1)/(layers-first)
	}, list...)
	if err != nil {
		b.Fatal(err)
	}
	m := benchmarkModel(b, shape, dev)
	own := backendtest.CPU(b, backend.Options{Threads: 1})
	one, all := newPasses(b, benchmarkModel(b, shape, own), own), newPasses(b, m, dev)
	for _, d := range []time.Duration{0, 100 * time.Microsecond, 800 * time.Microsecond} {
		b.Run(fmt.Sprintf("delay=%v/depth", d), func(b *testing.B) {
			delay.Store(int64(d))
			rows := []int{1, 2, 4}
			shares, times := make([][]float64, len(rows)), make([][]float64, len(rows))
			for first := true; b.Loop(); first = false {
				for i := range 3 * len(rows) {
					i %= len(rows)
					x, y := one.pass(b, rows[i]), all.pass(b, rows[i])
					if !first { // passes are recorded
						shares[i], times[i] = append(shares[i], x/y), append(times[i], 1e3*x)
					}
				}
			}
			for i, n := range rows {
				if len(shares[i]) > 0 {
					b.ReportMetric(measure.Median(shares[i]), fmt.Sprintf("share-depth%d", n-1))
					b.ReportMetric(measure.Median(times[i]), fmt.Sprintf("ms-alone-depth%d", n-1))
				}
			}
		})
	}
	for _, d := range []time.Duration{100 * time.Microsecond, 800 * time.Microsecond} {
		for _, each := range []int{1, 4, 16} {
			b.Run(fmt.Sprintf("delay=%v/group=%d", d, each), func(b *testing.B) {
				delay.Store(int64(d))
				var gain, group, chosen, flying []float64
				for first := true; b.Loop(); first = false {
					tokens := 32
					if first {
						tokens = 4
					}
					all := each * machines
					x, y := throughput(b, m, dev, 1, all, all, tokens, 0), throughput(b, m, dev, 1, each, each, tokens, 0)
					z, own := throughput(b, m, dev, machines, all, all, tokens, 0), throughput(b, m, dev, 0, all, all, tokens, 0)
					if !first {
						gain, group, chosen, flying = append(gain, z/x), append(group, z/y), append(chosen, own/max(x, z)), append(flying, z)
					}
				}
				if len(gain) > 0 {
					b.ReportMetric(measure.Median(gain), "gain")
					b.ReportMetric(measure.Median(group), "gain-group")
					b.ReportMetric(measure.Median(chosen), "chosen")
					b.ReportMetric(measure.Median(flying), "tokens/s")
				}
			})
		}
		b.Run(fmt.Sprintf("delay=%v/prompt", d), func(b *testing.B) {
			delay.Store(int64(d))
			var gain, flying []float64
			for first := true; b.Loop(); first = false {
				x, y := prefilled(b, m, dev, 1, 1024, RoundTokens), prefilled(b, m, dev, 0, 1024, RoundTokens)
				if !first {
					gain, flying = append(gain, y/x), append(flying, y)
				}
			}
			if len(gain) > 0 {
				b.ReportMetric(measure.Median(gain), "gain")
				b.ReportMetric(measure.Median(flying), "tokens/s")
			}
		})
	}
}

// serveNode is a node until the process ends.
func serveNode(b *testing.B) {
	b.Helper()
	key, err := link.New()
	if err != nil {
		b.Fatal(err)
	}
	raw, err := net.Listen("tcp", *serveFlag)
	if err != nil {
		b.Fatal(err)
	}
	l, err := link.Listen(raw, link.Options{Identity: key, Token: benchmarkToken(b)})
	if err != nil {
		b.Fatal(err)
	}
	n := &backendtest.Node{}
	n.Open = func() (backend.Backend, error) { return backend.Open("cpu", backend.Options{Threads: 1}) }
	b.Fatal(n.Serve(b.Context(), l))
}

// benchmarkToken is the token of the nodes, nil for none.
func benchmarkToken(b *testing.B) link.Token {
	b.Helper()
	if *tokenFlag == "" {
		return nil
	}
	t, err := link.ReadToken(*tokenFlag)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// benchmarkNode is the device of node i.
func benchmarkNode(b *testing.B, i int, delay *atomic.Int64) backend.Backend {
	b.Helper()
	o := remote.Options{Name: fmt.Sprint(i), OpenWait: time.Minute, Log: slog.New(slog.DiscardHandler)}
	var dial func(context.Context) (net.Conn, error)
	if *nodesFlag == "" {
		dial = backendtest.StartNode(b, backend.Options{Threads: 1}).Dial(0)
	} else {
		key, err := link.New()
		if err != nil {
			b.Fatal(err)
		}
		leader, at := link.Dialer{Identity: key, Token: benchmarkToken(b)}, link.Address{HostPort: strings.Split(*nodesFlag, ",")[i]}
		dial = func(ctx context.Context) (net.Conn, error) { return leader.Dial(ctx, at) }
	}
	o.Dial = func(ctx context.Context) (net.Conn, error) {
		c, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return backendtest.Late(c, delay), nil
	}
	return backendtest.Remote(b, backend.Options{}, o)
}

func benchmarkModel(b *testing.B, shape string, dev backend.Backend) model.Model {
	b.Helper()
	o := model.Options{MaxDrafts: 3, Log: slog.New(slog.DiscardHandler)}
	if strings.HasSuffix(shape, ".gguf") {
		return modeltest.OpenOn(b, dev, shape, o).Model
	}
	m, err := model.Generate(shape, weights.BitsForm(4), dev, o)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// passes is a sequence whose passes are timed.
type passes struct{ *measure.Sequence }

func newPasses(b *testing.B, m model.Model, dev backend.Backend) passes {
	b.Helper()
	s, err := measure.Open(m, nil, state.NewPool(dev, 1<<30), m.Info().Vocab)
	if err == nil {
		_, err = s.Prefill(prompt(2, 0), 1)
	}
	if err != nil {
		b.Fatal(err)
	}
	return passes{s}
}

// pass is the seconds of a pass.
func (s passes) pass(b *testing.B, rows int) float64 {
	b.Helper()
	_, took, err := s.Pass(1, make([]int32, rows-1)...)
	if err != nil {
		b.Fatal(err)
	}
	return took.Seconds()
}

// throughput is the tokens per second of sequences with answers of a length, a number of which run at a time. Each begins a time apart after the
// one before. As many as run at a time go first, and allocate the memory.
func throughput(b testing.TB, m model.Model, dev backend.Backend, groups, running, sequences, tokens int, apart time.Duration) float64 {
	b.Helper()
	e, err := New(m, state.NewPool(dev, 1<<30), Options{groups: groups, MaxBatch: running})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	answer := func(sequences int) time.Duration {
		start := time.Now()
		var all sync.WaitGroup
		for i := range sequences {
			all.Go(func() {
				time.Sleep(time.Duration(i) * apart)
				r := Request{Prompt: prompt(2, i), MaxTokens: tokens, IgnoreEnd: true, Depth: spec.DepthOff}
				if _, _, err := collect(e, r); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
		return time.Since(start)
	}
	answer(running) // which takes the memory
	return float64(sequences*tokens) / answer(sequences).Seconds()
}

// prefilled is the tokens per second of a prompt, after an equal one that tells what it costs.
func prefilled(b testing.TB, m model.Model, dev backend.Backend, groups, tokens, round int) float64 {
	b.Helper()
	e, err := New(m, state.NewPool(dev, 1<<30), Options{groups: groups, RoundTokens: round})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	took := time.Duration(0)
	for range 2 {
		_, r, err := collect(e, Request{Prompt: prompt(tokens, 0), MaxTokens: 3, IgnoreEnd: true, Depth: spec.DepthOff})
		if took = r.Prefill; err != nil {
			b.Fatal(err)
		}
	}
	return float64(tokens) / took.Seconds()
}
