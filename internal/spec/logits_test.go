package spec

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/sample"
)

// counting is a device with memory of its own that counts what leaves it.
type counting struct {
	*backendtest.Opaque
	tops, hosts, numbers int
}

func (c *counting) Top(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
	best, err := c.Opaque.Top(src, asks)
	c.tops++
	for _, b := range best {
		c.numbers += 2*len(b.IDs) + len(b.Also)
	}
	return best, err
}

func (c *counting) Host(src backend.Tensor) ([]float32, error) {
	c.hosts++
	c.numbers += src.Rows * src.Cols
	return c.Opaque.Host(src)
}

// upload brings rows to a device.
func upload(tb testing.TB, b backend.Backend, rows [][]float32) backend.Tensor {
	tb.Helper()
	x, err := b.Alloc(dtype.F32, len(rows), len(rows[0]))
	if err != nil {
		tb.Fatal(err)
	}
	for i, row := range rows {
		if err := b.Write(x.RowRange(i, i+1), row); err != nil {
			tb.Fatal(err)
		}
	}
	return x
}

// even allows every second id, or one alone.
type even struct{ only int }

func (e even) Accept(int32) {}

func (e even) Allowed([]int32) []uint64 {
	mask := make([]uint64, 100)
	if e.only > 0 {
		mask[e.only/64] = 1 << (e.only % 64)
		return mask
	}
	for i := range mask {
		mask[i] = 0x5555555555555555
	}
	return mask
}

// request is one of a batch: how it samples, and whether the device may keep its rows.
type request struct {
	sample.Options
	stays bool
}

var requests = []request{
	{sample.Options{}, true},
	{sample.Options{Temperature: 0.8, TopK: 20, TopP: 0.9}, true},
	{sample.Options{Temperature: 1, TopK: 8, RepetitionPenalty: 1.3, PresencePenalty: 1, LogitBias: map[int32]float32{7: 3}}, true},
	{sample.Options{Temperature: 1, TopK: 4, Constraint: func() sample.Constraint { return even{} }}, true},
	{sample.Options{Vocab: 3000}, true},
	{sample.Options{Temperature: 0.9}, false},
	{sample.Options{Temperature: 0.9, TopP: 0.8}, false},
	{sample.Options{Constraint: func() sample.Constraint { return even{only: 77} }}, false}, // not among the highest
}

// TestLogitsStayWhereTheyAre verifies drafts of batches by what is read of their rows, and by the
// whole of them: the same tokens are accepted. One call of the device tells the highest logits
// of all rows and draws where it may, whole rows leave it only for requests that need them.
func TestLogitsStayWhereTheyAre(t *testing.T) {
	const vocab = 5000
	device := &counting{Opaque: backendtest.NewOpaque(backendtest.Open(t, backend.Options{Threads: 1}))}
	rng := rand.New(rand.NewPCG(8, 8))
	var l Logits
	drawn := 0
	for turn := range 80 {
		var rows [][]float32
		var batch []request
		var samplers []*sampling.Sampler
		var drafts []Draft
		stay := rng.IntN(2) == 0
		for range 1 + rng.IntN(5) {
			r := requests[rng.IntN(len(requests))]
			if stay && !r.stays {
				continue
			}
			r.Seed = rng.Uint64()
			batch, samplers = append(batch, r), append(samplers, newSampler(t, r.Options))
			var d Draft
			for range rng.IntN(4) {
				d.Tokens = append(d.Tokens, int32(rng.IntN(vocab)))
			}
			for i := range len(d.Tokens) + 1 {
				row := make([]float32, vocab)
				for j := range row {
					row[j] = float32(3 * rng.NormFloat64())
				}
				if i < len(d.Tokens) && rng.IntN(3) > 0 {
					row[d.Tokens[i]] = 20
				}
				rows = append(rows, row)
			}
			drafts = append(drafts, d)
		}
		if len(batch) == 0 {
			continue
		}
		l.Begin(device, upload(t, device, rows))
		l.Draw = turn%2 == 1
		device.tops, device.hosts, device.numbers = 0, 0, 0
		for i, s := range samplers {
			l.Ask(s, drafts[i].Tokens, len(drafts[i].Tokens)+1)
		}
		got := make([][2]int, len(batch))
		err := l.Resolve(func(i int, rows []sampling.Row) bool {
			for _, r := range rows {
				if r.Drawn {
					drawn++
				}
			}
			accepted, next, ok := Exact.Verify(samplers[i], drafts[i], rows)
			got[i] = [2]int{accepted, int(next)}
			return ok
		})
		if err != nil {
			t.Fatal(err)
		}
		at := 0
		for i, r := range batch {
			n := len(drafts[i].Tokens) + 1
			accepted, next, _ := Exact.Verify(newSampler(t, r.Options), drafts[i], whole(rows[at:at+n]...))
			if got[i] != [2]int{accepted, int(next)} {
				t.Fatalf("%+v: accepted and next %v, of whole rows %d and %d", r.Options, got[i], accepted, next)
			}
			at += n
		}
		if device.tops > 1 || device.hosts > 2 || stay && (device.hosts > 0 || device.numbers > vocab/4*len(rows)) {
			t.Fatalf("%d and %d calls of the device for %d numbers of %d rows, all of which may stay: %v", device.tops, device.hosts, device.numbers, len(rows), stay)
		}
	}
	if drawn < 20 {
		t.Errorf("the device drew %d times", drawn)
	}
}

// TestGroupsAreSpread has so much to look at that threads share it. Every group is called, and
// the panic of one is the caller's.
func TestGroupsAreSpread(t *testing.T) {
	b := backendtest.Open(t, backend.Options{Threads: 3})
	for _, device := range []backend.Backend{b, backendtest.NewOpaque(b)} {
		rows := slices.Repeat([][]float32{make([]float32, spreadFrom/4)}, 8)
		for i := range rows {
			rows[i] = slices.Clone(rows[i])
			rows[i][0] = float32(i)
		}
		x := upload(t, device, rows)
		for _, bad := range []int{-1, 5} {
			var l Logits
			l.Begin(device, x)
			for range rows {
				l.AskWhole(1)
			}
			seen := make([]float32, len(rows))
			var fault any
			var calls atomic.Int32
			func() {
				defer func() { fault = recover() }()
				err := l.Resolve(func(i int, rows []sampling.Row) bool {
					calls.Add(1)
					if i == bad {
						panic("a bad grammar")
					}
					seen[i] = rows[0].All[0]
					return true
				})
				if err != nil {
					t.Error(err)
				}
			}()
			if (fault != nil) != (bad >= 0) {
				t.Errorf("panic of %d: %v", bad, fault)
			}
			if n := int(calls.Load()); n != len(rows) {
				t.Errorf("panic of %d: %d calls for %d groups", bad, n, len(rows))
			}
			for i, x := range seen {
				if i != bad && x != float32(i) {
					t.Errorf("group %d has seen %v", i, x)
				}
			}
		}
	}
}

// TestLogitsReportErrors has a pass fail on the device, whatever is asked of its rows.
func TestLogitsReportErrors(t *testing.T) {
	device := backendtest.NewOpaque(backendtest.Open(t, backend.Options{Threads: 1}))
	lost := errors.New("the device is gone")
	x, err := device.Alloc(dtype.F32, 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i, ask := range []func(l *Logits){
		func(l *Logits) { l.Ask(newSampler(t, sample.Options{}), nil, 1) },
		func(l *Logits) { l.AskWhole(1) },
		func(*Logits) {},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			var l Logits
			device.Break(lost)
			device.Fill(x, 1)
			l.Begin(device, x)
			ask(&l)
			err := l.Resolve(func(int, []sampling.Row) bool { t.Error("rows of a pass that failed"); return true })
			if !errors.Is(err, lost) {
				t.Errorf("%v, want %v", err, lost)
			}
		})
	}
}

func newSampler(t testing.TB, o sample.Options) *sampling.Sampler {
	t.Helper()
	s, err := sampling.New(o, []int32{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// BenchmarkResolve verifies one token of each of a batch, on one thread and on two.
func BenchmarkResolve(b *testing.B) {
	const vocab = 248_320
	rng := rand.New(rand.NewPCG(1, 2))
	row := make([]float32, vocab)
	for i := range row {
		row[i] = float32(2.5 * rng.NormFloat64())
	}
	for name, o := range map[string]sample.Options{
		"topk":        {Temperature: 0.8, TopK: 20, TopP: 0.95},
		"topp":        {Temperature: 0.8, TopP: 0.95},
		"temperature": {Temperature: 0.8},
	} {
		for _, batch := range []int{1, 2, 4, 16} {
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("chain=%s/batch=%d/threads=%d", name, batch, threads), func(b *testing.B) {
					device := backendtest.Open(b, backend.Options{Threads: threads})
					x, err := device.Alloc(dtype.F32, batch, vocab)
					if err != nil {
						b.Fatal(err)
					}
					var samplers []*sampling.Sampler
					for i := range batch {
						if err := device.Write(x.RowRange(i, i+1), row); err != nil {
							b.Fatal(err)
						}
						samplers = append(samplers, newSampler(b, o))
					}
					var l Logits
					for b.Loop() {
						l.Begin(device, x)
						for _, s := range samplers {
							l.Ask(s, nil, 1)
						}
						err := l.Resolve(func(i int, rows []sampling.Row) bool {
							_, next, ok := Exact.Verify(samplers[i], Draft{}, rows)
							if ok {
								samplers[i].Accept(next)
							}
							return ok
						})
						if err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
