package prefix_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/state"
)

// rig is a model with its head, and memory for sequences.
type rig struct {
	*modeltest.Rig
	t *testing.T
}

func open(t *testing.T, name string, o model.Options) *rig {
	t.Helper()
	return openOn(t, name, o, backend.Options{})
}

// openOn is open on a device of that kind.
func openOn(t *testing.T, name string, o model.Options, device backend.Options) *rig {
	t.Helper()
	return &rig{modeltest.OpenOn(t, backendtest.Open(t, device), golden.Dir(t, name), o), t}
}

func (r *rig) cache(d *store.Disk) *prefix.Cache {
	return prefix.New(r.Pool, prefix.Options{Target: r.Layout(), Drafts: []state.Layout{r.Head().Layout()}, Tiers: store.Tiers{Disk: d}})
}

// reader feeds a text: its tokens to the model, and pairs of a hidden row and the token after it to the head.
type reader struct {
	*rig
	text           []int32
	target, memory *state.State
	hidden         backend.Tensor // the last row
	logits, head   map[int][]float32
}

func (r *rig) reader(text []int32) *reader {
	r.t.Helper()
	x := &reader{rig: r, text: text, logits: map[int][]float32{}, head: map[int][]float32{}}
	x.target, x.memory = r.Sequence(r.t), r.Pairs(r.t)
	return x
}

func (x *reader) close() {
	x.target.Close()
	x.memory.Close()
}

// read feeds the text up to a length, the last tokens as drafts, with two wrong drafts behind them.
func (x *reader) read(to, drafts int) {
	x.t.Helper()
	from := x.target.Len()
	tokens, wrong := slices.Clone(x.text[from:to]), 0
	if drafts = min(drafts, len(tokens)-1); drafts > 0 {
		tokens, wrong = append(tokens, 1, 2), 2
	}
	out, err := x.Forward([]model.Span{{State: x.target, Tokens: tokens, Drafts: drafts + wrong, Want: len(tokens)}})
	if err != nil {
		x.t.Fatal(err)
	}
	x.target.Commit(drafts)
	n := to - from
	x.keep(x.logits, from, out, n)
	x.hidden = out.Hidden.RowRange(n-1, n)
	x.catchUp(out.Hidden.RowRange(0, n))
}

// catchUp feeds the head the pairs of hidden rows.
func (x *reader) catchUp(hidden backend.Tensor) {
	x.t.Helper()
	from, n := x.memory.Len(), hidden.Rows
	out, err := x.Head().Forward([]model.Span{{State: x.memory, Tokens: x.text[from+1:][:n], Want: n, Hidden: hidden}}, nil)
	if err != nil {
		x.t.Fatal(err)
	}
	x.keep(x.head, from, out, n)
}

// keep copies the first n rows of logits of a pass.
func (x *reader) keep(to map[int][]float32, from int, out model.Output, n int) {
	x.t.Helper()
	for i, row := range modeltest.Rows(x.t, out)[:n] {
		to[from+i] = row
	}
}

// restore starts behind the longest entry of a cache and returns its length.
func (x *reader) restore(c *prefix.Cache) int {
	x.t.Helper()
	h := c.Find(prefix.Salt{}, prefix.Text{Tokens: x.text}, true)
	if h == nil {
		return 0
	}
	defer h.Release()
	if err := h.Restore(x.target, x.memory); err != nil {
		x.t.Fatal(err)
	}
	x.catchUp(h.Hidden(0))
	return h.Len()
}

// same compares rows with those of a reader that has all of them.
func (x *reader) same(what string, want *reader) {
	x.t.Helper()
	for name, rows := range map[string][2]map[int][]float32{"logits": {x.logits, want.logits}, "drafts": {x.head, want.head}} {
		for pos, got := range rows[0] {
			for i, v := range rows[1][pos] {
				if math.Float32bits(got[i]) != math.Float32bits(v) {
					x.t.Fatalf("%s: %s at %d: number %d is %v, want %v", what, name, pos, i, got[i], v)
				}
			}
		}
	}
}

// randomText is n random tokens.
func randomText(rng *rand.Rand, vocab, n int) []int32 {
	text := make([]int32, n)
	for i := range text {
		text[i] = int32(rng.IntN(vocab))
	}
	return text
}

var subjects = []struct {
	name string
	o    model.Options
}{
	{"tiny", model.Options{MaxDrafts: 8}},
	{"moe", model.Options{MaxDrafts: 8, Quantize: 4}},
	{"dense", model.Options{MaxDrafts: 8, Compute: backend.Float32}},
	{"dense", model.Options{MaxDrafts: 8, KVBits: 4}},
}

// TestHitEqualsPrefill stores boundaries of a text. The logits and drafts after each of them equal those of a prefill
// from the start.
func TestHitEqualsPrefill(t *testing.T) {
	for _, sub := range subjects {
		if testing.Short() && sub.name == "tiny" {
			continue
		}
		t.Run(fmt.Sprintf("%s/kv=%d", sub.name, sub.o.KVBits), func(t *testing.T) {
			r := open(t, sub.name, sub.o)
			rng := rand.New(rand.NewPCG(5, 6))
			const length, tail = 216, 6
			text := randomText(rng, r.Info().Vocab, length+1)
			want := r.reader(text)
			want.read(length, 0)
			want.close()

			boundaries := []int{1, 2, 3, 63, 64, 65, 66, 127, 128, 129, 191, 192, 193, 200}
			for range 12 {
				boundaries = append(boundaries, 1+rng.IntN(200))
			}
			slices.Sort(boundaries)
			boundaries = slices.Compact(boundaries)
			c := r.cache(nil)
			x := r.reader(text)
			for _, b := range boundaries {
				x.read(b, rng.IntN(5)) // with drafts that are yet to be replayed
				if err := c.Store(prefix.Salt{}, prefix.Text{Tokens: text[:b]}, x.target, prefix.Draft{State: x.memory, Hidden: x.hidden}); err != nil {
					t.Fatal(err)
				}
			}
			x.read(length, 0)
			x.same("while storing", want)
			x.close()
			for _, b := range boundaries {
				y := r.reader(text[:b+1])
				if got := y.restore(c); got != b {
					t.Fatalf("found %d tokens, want %d", got, b)
				}
				y.text = text
				y.read(b+tail, rng.IntN(5))
				y.read(b+2*tail, 2)
				y.same(fmt.Sprintf("behind %d tokens", b), want)
				y.close()
			}
			c.Close()
			if s := r.Pool.Stats(); s.Used != 0 || s.Pages != 0 || s.States != 0 {
				t.Errorf("after everything was closed: %+v", s)
			}
		})
	}
}

// TestHitsAreIndependent alternates between texts with one prefix, and compares each with itself alone.
func TestHitsAreIndependent(t *testing.T) {
	for _, sub := range subjects[1:] {
		t.Run(fmt.Sprintf("%s/kv=%d", sub.name, sub.o.KVBits), func(t *testing.T) {
			r := open(t, sub.name, sub.o)
			rng := rand.New(rand.NewPCG(7, 8))
			vocab := r.Info().Vocab
			start := randomText(rng, vocab, 100)
			c := r.cache(nil)
			defer c.Close()
			x := r.reader(append(slices.Clone(start), 1))
			x.read(len(start), 3)
			if err := c.Store(prefix.Salt{}, prefix.Text{Tokens: start}, x.target, prefix.Draft{State: x.memory, Hidden: x.hidden}); err != nil {
				t.Fatal(err)
			}
			x.close()
			var alone, together []*reader
			for range 3 {
				text := append(slices.Clone(start), randomText(rng, vocab, 61)...)
				a, b := r.reader(text), r.reader(text)
				defer a.close()
				defer b.close()
				a.read(len(text)-1, 0)
				if got := b.restore(c); got != len(start) {
					t.Fatalf("found %d tokens", got)
				}
				alone, together = append(alone, a), append(together, b)
			}
			for to := len(start) + 3; to < len(start)+60; to += 3 {
				for _, b := range together {
					b.read(to, rng.IntN(3))
				}
			}
			for i, b := range together {
				b.same(fmt.Sprintf("text %d", i), alone[i])
			}
		})
	}
}

// TestDiskHitEqualsPrefill is TestHitEqualsPrefill for a new cache of the same folder.
func TestDiskHitEqualsPrefill(t *testing.T) {
	sub := subjects[1]
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(9, 9))
	r := open(t, sub.name, sub.o)
	text := randomText(rng, r.Info().Vocab, 160)
	x := r.reader(text)
	defer x.close()
	d, err := store.OpenDisk(dir, store.DiskOptions{Bytes: 1 << 30, Fingerprint: "moe"})
	if err != nil {
		t.Fatal(err)
	}
	c := r.cache(d)
	x.read(140, 4)
	if err := c.Store(prefix.Salt{}, prefix.Text{Tokens: text[:140]}, x.target, prefix.Draft{State: x.memory, Hidden: x.hidden}); err != nil {
		t.Fatal(err)
	}
	x.read(159, 0)
	c.Close()
	d.Close()

	r = open(t, sub.name, sub.o)
	if d, err = store.OpenDisk(dir, store.DiskOptions{Bytes: 1 << 30, Fingerprint: "moe"}); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c = r.cache(d)
	defer c.Close()
	ready := make(chan struct{})
	if !c.Fetch(prefix.Salt{}, prefix.Text{Tokens: text}, func() { close(ready) }) {
		t.Fatal("the folder is empty")
	}
	<-ready
	y := r.reader(text)
	defer y.close()
	if got := y.restore(c); got != 140 {
		t.Fatalf("found %d tokens", got)
	}
	y.read(159, 0)
	y.same("from the folder", x)
}

// TestSharedHitEqualsPrefillOnOtherInstructionSets has each instruction set of this machine store a prefix. Each other
// one continues behind it with the bits of a prefill.
func TestSharedHitEqualsPrefillOnOtherInstructionSets(t *testing.T) {
	sub := subjects[1]
	rng := rand.New(rand.NewPCG(21, 9))
	const boundary, length = 140, 150
	var text []int32
	share := func(r *rig, files store.Store, do func(*prefix.Cache)) {
		s := store.NewShared(files, store.SharedOptions{Fingerprint: "moe", Uses: 1})
		defer s.Close()
		c := prefix.New(r.Pool, prefix.Options{Target: r.Layout(), Drafts: []state.Layout{r.Head().Layout()}, Tiers: store.Tiers{Shared: s}})
		defer c.Close()
		do(c)
	}
	stores, alone := map[string]store.Store{}, map[string]*reader{}
	for _, isa := range cpuSets(t) {
		r := openOn(t, sub.name, sub.o, backend.Options{ISA: isa})
		if text == nil {
			text = randomText(rng, r.Info().Vocab, length+1)
		}
		var err error
		if stores[isa], err = store.OpenFolder(t.TempDir()); err != nil {
			t.Fatal(err)
		}
		x := r.reader(text)
		share(r, stores[isa], func(c *prefix.Cache) {
			x.read(boundary, 4)
			if err := c.Store(prefix.Salt{}, prefix.Text{Tokens: text[:boundary]}, x.target, prefix.Draft{State: x.memory, Hidden: x.hidden}); err != nil {
				t.Fatal(err)
			}
		})
		x.read(length, 0)
		x.close()
		alone[isa] = x
	}
	for reads := range stores {
		r := openOn(t, sub.name, sub.o, backend.Options{ISA: reads})
		for wrote, files := range stores {
			share(r, files, func(c *prefix.Cache) {
				ready := make(chan struct{})
				if !c.Fetch(prefix.Salt{}, prefix.Text{Tokens: text}, func() { close(ready) }) {
					t.Fatal("the store is not asked")
				}
				<-ready
				y := r.reader(text)
				defer y.close()
				if got := y.restore(c); got != boundary {
					t.Fatalf("%s found %d tokens that %s wrote", reads, got, wrote)
				}
				y.read(length, 0)
				y.same(fmt.Sprintf("%s after %s", reads, wrote), alone[reads])
				y.same(fmt.Sprintf("%s after %s, against that", reads, wrote), alone[wrote])
			})
		}
	}
}

// cpuSets are the instruction sets that run here.
func cpuSets(t *testing.T) []string {
	t.Helper()
	for _, d := range backend.List() {
		if list := d.Runnable(); d.Name == "cpu" && len(list) > 0 {
			return list
		}
	}
	t.Fatal("no instruction set runs here")
	return nil
}
