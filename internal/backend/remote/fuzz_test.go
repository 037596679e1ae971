package remote_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/dtype"
)

// tapped is a connection that changes or copies what passes it.
type tapped struct {
	net.Conn
	wrote func(p []byte)
	read  func(p []byte)
}

func (c *tapped) Write(p []byte) (int, error) {
	if c.wrote != nil {
		c.wrote(p)
	}
	return c.Conn.Write(p)
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.read != nil {
		c.read(p[:n])
	}
	return n, err
}

// fuzzChecks are checks of the suite whose frames have all kinds of fields.
var fuzzChecks = []string{"Load", "Gather", "LayerNorm", "Rotate", "Mix", "Top", "Experts", "Attend", "Convolve", "DeltaNet", "Pass", "Unload"}

// session is what a leader sends after its greeting, frame by frame, in a check of the suite.
func session(tb testing.TB, s backendtest.Suite, check string) (list [][]byte) {
	tb.Helper()
	n := backendtest.StartNode(tb, backend.Options{Threads: 1})
	dial, first := n.Dial(0), true
	var sent []byte
	b, err := remote.Open(tb.Context(), remote.Options{Name: "desk", Dial: func(ctx context.Context) (net.Conn, error) {
		c, err := dial(ctx)
		if err != nil || !first { // the second has the pings
			return c, err
		}
		first = false
		return &tapped{Conn: c, wrote: func(p []byte) { sent = append(sent, p...) }}, nil
	}})
	if err != nil {
		tb.Fatal(err)
	}
	if found := s.Only(check).Check(b); len(found) > 0 {
		tb.Fatal(found)
	}
	d := b.(backend.Rehearser)
	if err := d.Rehearse(func() error { return nil }); err != nil {
		tb.Fatal(err)
	}
	d.(backend.Sizer).WeightBytes(&dtype.Matrix{Rows: 3, Cols: 5, Type: dtype.F32})
	if err := b.Close(); err != nil {
		tb.Fatal(err)
	}
	for len(sent) > 0 {
		size := 4 + int(binary.LittleEndian.Uint32(sent))
		list, sent = append(list, sent[:size]), sent[size:]
	}
	return list[1:]
}

// fuzzBudget is the memory of a session of a fuzzer.
const fuzzBudget = 64 << 20

// serve has a device of its own serve a session.
func serve(tb testing.TB, data []byte) {
	tb.Helper()
	b, err := backend.Open("cpu", backend.Options{Threads: 1})
	if err != nil {
		tb.Fatal(err)
	}
	if used := remote.ServeFrames(b, fuzzBudget, data); used > fuzzBudget {
		tb.Errorf("%d bytes are in use, %d are allowed", used, fuzzBudget)
	}
	if u := backend.UsageOf(b); u[0].Used != 0 {
		tb.Errorf("%d bytes of the device are left", u[0].Used)
	}
}

// Sessions with wrong bytes in frames, with frames that are missing, twice there or in another order, end with errors.
func TestWrongFramesEndSessions(t *testing.T) {
	suite, rng := backendtest.Brief(t), rand.New(rand.NewPCG(3, 4))
	rounds := 2
	if long {
		rounds = 20
	}
	for _, check := range fuzzChecks {
		frames := session(t, suite, check)
		for range rounds {
			var data []byte
			from := rng.IntN(len(frames))
			for i, f := range frames[:min(len(frames), from+60)] {
				f = append([]byte(nil), f...)
				switch odds := rng.IntN(40); {
				case i < from || odds > 3:
				case odds == 0:
					continue
				case odds == 1:
					data = append(data, f...)
				case odds == 2:
					f = append([]byte(nil), frames[rng.IntN(len(frames))]...)
				default: // a field
					if at := 4 + rng.IntN(min(len(f)-4, 400)); at < len(f) {
						f[at] = byte(rng.Uint32() >> (rng.IntN(4) * 8))
					}
				}
				data = append(data, f...)
			}
			serve(t, data)
		}
	}
}

func FuzzFrames(f *testing.F) {
	suite := backendtest.Brief(f)
	checks := fuzzChecks[len(fuzzChecks)-2:]
	if flag.Lookup("test.fuzz").Value.String() != "" {
		checks = fuzzChecks
	}
	for _, check := range checks {
		var data []byte
		for _, x := range session(f, suite, check) {
			if len(data)+len(x) > 64<<10 {
				break
			}
			data = append(data, x...)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { serve(t, data) })
}

// FuzzMatrix reads files of a node's cache: they may be damaged in any way.
func FuzzMatrix(f *testing.F) {
	m := dtype.Matrix{Rows: 2, Cols: 2, Type: dtype.F16, Data: make([]byte, 8)}
	var b bytes.Buffer
	if err := remote.WriteMatrix(&b, &m); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := remote.ReadMatrix(bytes.NewReader(data), int64(len(data)))
		if err == nil && got.Validate() != nil {
			t.Error("a matrix that is not valid")
		}
	})
}

// lying is the bytes of a node's answers that are wrong.
func lying(seed uint64, dial func(ctx context.Context) (net.Conn, error)) func(ctx context.Context) (net.Conn, error) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 1))
	return func(ctx context.Context) (net.Conn, error) {
		c, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return &tapped{Conn: c, read: func(p []byte) {
			mu.Lock()
			defer mu.Unlock()
			for range len(p) / 64 {
				if rng.IntN(6) == 0 {
					p[rng.IntN(len(p))] = byte(rng.Uint32())
				}
			}
		}}, nil
	}
}

// use is calls of a device, whose results may be wrong.
func use(b backend.Backend) {
	x, err := b.Alloc(dtype.F32, 4, 64)
	if err != nil {
		return
	}
	m := dtype.Matrix{Rows: 16, Cols: 64, Type: dtype.F32, Data: make([]byte, 16*64*4)}
	if w, err := b.Load(backend.Int8, m); err == nil && (w.Rows() != 16 || w.Count() != 1) {
		panic("a weight of another shape")
	}
	for range 5 {
		_ = b.Write(x, make([]float32, 4*64)) // as the others, for what it does to this end
		_, _ = b.Host(x)
		if best, err := b.Top(x, []backend.Ask{{K: 3, Sum: true}, {Also: []int32{5}}, {}, {K: 70}}); err == nil && len(best) != 4 {
			panic("another number of answers")
		}
		_ = b.ReadBytes(make([]byte, 64*4), x.RowRange(1, 2))
	}
}

// A node that answers with wrong bytes makes errors on the leader, and no panic. One that claims more bytes than it sends can
// have it wait, until the leader's context ends.
func TestLyingNode(t *testing.T) {
	seeds := uint64(100)
	if long {
		seeds = 2000
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { // the wait ends when nothing computes anymore
			s := newStopping(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			b, err := remote.Open(ctx, remote.Options{Name: "desk", Dial: lying(seed, s.dial), Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				return
			}
			use(b)
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
