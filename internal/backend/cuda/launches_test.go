package cuda

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// idle is a device with no memory that does nothing: what is queued on it can be counted for models that
// no interpreter has time for.
type idle struct {
	next  driver.Ptr
	calls map[string]int
}

func (d *idle) did(call string) error {
	d.calls[call]++
	return nil
}

func (d *idle) Memory() (free, total int64, err error) { return 1 << 40, 1 << 40, nil }

func (d *idle) Alloc(bytes int64) (driver.Ptr, error) {
	d.next += driver.Ptr(max(bytes, 1)+gpu.Alignment-1) &^ (gpu.Alignment - 1)
	return d.next, d.did("alloc")
}
func (d *idle) Free(driver.Ptr) error              { return d.did("free") }
func (d *idle) Pin(bytes int64) ([]byte, error)    { return make([]byte, bytes), d.did("pin") }
func (d *idle) Unpin([]byte) error                 { return d.did("unpin") }
func (d *idle) Load(string) (driver.Module, error) { return d, d.did("load") }
func (d *idle) Stream() (driver.Stream, error)     { return idleStream{d}, nil }
func (d *idle) Event() (driver.Event, error)       { return nil, d.did("event") }
func (d *idle) Close() error                       { return nil }
func (d *idle) Function(name string) (driver.Function, error) {
	return idleFunction(name), d.did("function")
}

type idleFunction string

func (f idleFunction) Name() string                    { return string(f) }
func (f idleFunction) AllowShared(int) error           { return nil }
func (f idleFunction) PreferShared() error             { return nil }
func (f idleFunction) Occupancy(int, int) (int, error) { return 2, nil }

type idleStream struct{ *idle }

func (s idleStream) Write(driver.Ptr, []byte) error           { return s.did("write") }
func (s idleStream) Read([]byte, driver.Ptr) error            { return s.did("read") }
func (s idleStream) Copy(driver.Ptr, driver.Ptr, int64) error { return s.did("copy") }
func (s idleStream) Set(driver.Ptr, byte, int64) error        { return s.did("set") }
func (s idleStream) Launch(driver.Launch) error               { return s.did("launch") }
func (s idleStream) Mark(driver.Event) error                  { return s.did("mark") }
func (s idleStream) Wait() error                              { return s.did("wait") }
func (s idleStream) Capture(f func() error) (driver.Graph, error) {
	return idleGraph(s), f()
}

type idleGraph struct{ *idle }

func (g idleGraph) Launch() error { return g.did("graph") }
func (g idleGraph) Nodes() int    { return 0 }

// unpacked is a backend whose weights are forms without content.
type unpacked struct{ *Backend }

func (u unpacked) Load(c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	form, err := kernel.NewWeight(c == backend.Int8, stack)
	if err != nil {
		return nil, err
	}
	w := &weight{Weight: form, Layout: form.Layout(), packed: form.Layout(), owner: u.Backend}
	if form.Integer() {
		w.arrange(stack)
	}
	w.size = int64(w.Count() * w.Layout.Tiles * w.TileSize)
	w.at, err = u.memory.Alloc(w.size)
	u.weights[w] = struct{}{}
	return w, err
}

// openIdle is the backend on an idle device like an H200.
func openIdle(tb testing.TB) (*Backend, *idle) {
	tb.Helper()
	dev := &idle{calls: map[string]int{}}
	b, err := New(dev, driver.Info{Name: "idle", Compute: [2]int{9, 0}, Memory: 141 << 30, Multiprocessors: 132, Shared: 227 << 10}, Options{Kernels: os.DirFS("kernels")})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b, dev
}

// decode runs passes of a model over some rows on an idle device until they are replayed. It returns the
// kernels of a pass by name, and the driver's calls of the last one, with asking for the highest logits.
func decode(tb testing.TB, rows int, open func(b backend.Backend) (model.Model, error)) (kernels, calls map[string]int) {
	tb.Helper()
	b, dev := openIdle(tb)
	m, err := open(unpacked{b})
	if err != nil {
		tb.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // an idle device has nothing to free
	s, err := state.NewPool(b, 1<<40).Open(m.Layout())
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	asks := slices.Repeat([]backend.Ask{{K: 20}}, rows)
	for range 4 {
		clear(dev.calls)
		out, err := m.Forward([]model.Span{{State: s, Tokens: make([]int32, rows), Drafts: rows - 1, Want: rows}})
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := b.Top(out.Logits, asks); err != nil {
			tb.Fatal(err)
		}
		s.Commit(0)
	}
	kernels = map[string]int{}
	for key, r := range b.passes.Known {
		if key.Rows != rows {
			continue
		}
		for _, op := range r.ops {
			name := "copy or set"
			if op.launch.Function != nil {
				name = op.launch.Function.Name()
			}
			kernels[name]++
		}
	}
	return kernels, maps.Clone(dev.calls)
}

// total is the sum of counts.
func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// table is counts, the highest first.
func table(counts map[string]int) string {
	var lines strings.Builder
	for _, name := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], strings.Compare(a, b)) }) {
		fmt.Fprintf(&lines, "%6d %s\n", counts[name], name)
	}
	fmt.Fprintf(&lines, "%6d in all", total(counts))
	return lines.String()
}

// A launch costs most of a microsecond whatever it does: a pass has no more of them than this. That a
// pass that comes again is a copy to the device and a launch of a graph, and its highest logits another
// copy, two launches, a read and a wait, is all that the driver is asked for.
func TestLaunchesOfAPass(t *testing.T) {
	const layers, around = 4, 5 // around them: embedding, rotations, norm, wanted rows, output
	for _, c := range []struct {
		name       string
		rows, most int // of kernels, in a layer
	}{{"dense", 1, 10}, {"dense", 3, 10}, {"moe", 1, 13}, {"moe", 3, 14}} {
		t.Run(fmt.Sprintf("%s, %d rows", c.name, c.rows), func(t *testing.T) {
			rows := c.rows
			kernels, calls := decode(t, rows, func(b backend.Backend) (model.Model, error) {
				files, err := checkpoint.Open(golden.Dir(t, c.name))
				if err != nil {
					return nil, err
				}
				defer files.Close() //nolint:errcheck // read only
				return model.Open(files, b, model.Options{Quantize: 8, MaxDrafts: 7, Log: slog.New(slog.DiscardHandler)})
			})
			t.Logf("\n%s", table(kernels))
			if n := total(kernels); n > layers*c.most+around {
				t.Errorf("%d kernels for %d layers", n, layers)
			}
			want := map[string]int{"write": 2, "graph": 1, "launch": 2, "read": 1, "wait": 1}
			if !maps.Equal(calls, want) {
				t.Errorf("calls of the driver: %v, want %v", calls, want)
			}
		})
	}
}
