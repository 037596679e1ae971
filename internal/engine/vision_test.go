package engine

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/convert"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/picture"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// scene is a prompt with images and the results of the reference.
type scene struct {
	name   string
	prompt []int32 // with pad tokens
	seen   []*picture.Patches
	tokens []int32 // prompt and greedy continuation
	margin []float32
	draft1 []int32
	delta  int

	positions [3][]int32       // of tokens; nil: not known
	arrays    [][]golden.Array // logits, hidden rows and the head's logits of the last rows of the prompt, as far as known
}

// visionModel is a model with a tower.
type visionModel struct {
	*headed
	tower  model.Tower
	merge  int
	pads   []int32 // ids in place of images
	device backend.Backend
}

func openVision(t *testing.T, name string, o model.Options, pads ...int32) *visionModel {
	t.Helper()
	return openVisionAt(t, golden.Dir(t, name), o, pads...)
}

func openVisionAt(t *testing.T, dir string, o model.Options, pads ...int32) *visionModel {
	t.Helper()
	m, b := openOn(t, dir, o)
	tower, err := m.Model.(model.Multimodal).Tower()
	if err != nil || tower == nil {
		t.Fatalf("tower %v: %v", tower, err)
	}
	return &visionModel{m, tower, tower.Info().Merge, pads, b}
}

// request makes the pad tokens of a prompt rows of images, each temporal patch a part by itself.
func (g *visionModel) request(s *scene) Request {
	r := Request{Prompt: slices.Clone(s.prompt), MaxTokens: len(s.tokens) - len(s.prompt), IgnoreEnd: true, Hash: true}
	at := 0
	for _, p := range s.seen {
		n := p.Grid.Height * p.Grid.Width / (g.merge * g.merge)
		for time := range p.Grid.Time {
			for !slices.Contains(g.pads, r.Prompt[at]) {
				at++
			}
			in := Input{Input: prefix.Input{At: at, N: n, Hash: sha256.Sum256(fmt.Append(p.Hash[:], time))}, Image: p, First: time * n}
			for i := range int32(n) {
				columns := int32(p.Grid.Width / g.merge)
				in.Positions = append(in.Positions, [3]int32{0, i / columns, i % columns})
				r.Prompt[at+int(i)] = model.NoToken
			}
			r.Inputs, at = append(r.Inputs, in), at+n
		}
	}
	return r
}

// randomScenes are those of the random model.
func randomScenes(t *testing.T) (list []scene) {
	t.Helper()
	f := golden.LoadVision(t)
	images, err := picture.ReadImages(golden.Picture(t, "preprocessor_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	videos, err := picture.ReadVideos(golden.Picture(t, "video_preprocessor_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	for k, c := range f.Cases {
		s := scene{
			name: c.Name, prompt: c.Prompt, tokens: c.Tokens, margin: c.Margin[len(c.Prompt)-1:], draft1: c.Draft1, delta: c.Delta, positions: c.Positions,
		}
		for _, name := range c.Images {
			s.seen = append(s.seen, prepared(t, images.Prepare, decoded(t, golden.Picture(t, name))))
		}
		if c.Video {
			var frames []*picture.Image
			for _, name := range f.Video.Frames {
				frames = append(frames, decoded(t, golden.Picture(t, name)))
			}
			s.seen = append(s.seen, prepared(t, videos.PrepareVideo, frames))
		}
		for _, name := range []string{"logits_last", "hidden_last", "mtp_logits_last"} {
			s.arrays = append(s.arrays, []golden.Array{f.Array(t, fmt.Sprintf("p%d.%s", k, name))})
		}
		list = append(list, s)
	}
	return list
}

// tinyScenes are those of the trained model, whose tower is stored in the other layout.
func tinyScenes(t *testing.T) (list []scene) {
	t.Helper()
	f := golden.LoadTinyVision(t)
	config := picture.Images()
	config.MinPixels, config.MaxPixels = 9216, 16384
	for i, x := range f.Examples {
		list = append(list, scene{
			name: x.File, prompt: x.Prompt, tokens: x.Tokens, margin: x.Margin, draft1: x.Draft1, delta: x.Delta,
			seen:   []*picture.Patches{prepared(t, config.Prepare, decoded(t, x.Picture))},
			arrays: [][]golden.Array{{f.Array(t, fmt.Sprintf("%d.logits_last", i))}},
		})
	}
	return list
}

func decoded(t *testing.T, file []byte) *picture.Image {
	t.Helper()
	m, err := picture.Decode(file, picture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func prepared[T any](t *testing.T, prepare func(T, int) (*picture.Patches, error), from T) *picture.Patches {
	t.Helper()
	p, err := prepare(from, 1)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestVisionGoldens compares prompts with images with the reference, from the file to the drafts:
// positions, logits, hidden rows and the head's logits, greedy tokens with MTP on and off, and the
// first draft at every token.
func TestVisionGoldens(t *testing.T) {
	for name, c := range map[string]struct {
		dir    func(*testing.T, string) string
		scenes func(*testing.T) []scene
		pads   []int32
		depths []spec.Depth
	}{
		"vision":            {released, randomScenes, []int32{500, 501}, []spec.Depth{spec.DepthOff, 1, 4}},
		"vision, converted": {converted, randomScenes, []int32{500, 501}, []spec.Depth{4}},
		"tiny":              {released, tinyScenes, []int32{8194}, []spec.Depth{3}},
	} {
		t.Run(name, func(t *testing.T) {
			fixture, _, _ := strings.Cut(name, ",")
			g := openVisionAt(t, c.dir(t, fixture), model.Options{Compute: backend.Float32}, c.pads...)
			scenes := c.scenes(t)
			if brief(t) {
				scenes = scenes[2:4]
			}
			for _, s := range scenes {
				t.Run(s.name, func(t *testing.T) { s.check(t, g, c.depths) })
			}
		})
	}
}

// released is the folder of a fixture: in the releases' layout, tiny in MLX's.
func released(t *testing.T, name string) string { return golden.Dir(t, name) }

// converted is a fixture in MLX's layout.
func converted(t *testing.T, name string) string {
	c, err := checkpoint.Open(golden.Dir(t, name))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), name)
	_, err = convert.Convert(t.Context(), c, dir, convert.Options{})
	if err = errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (s *scene) check(t *testing.T, g *visionModel, depths []spec.Depth) {
	t.Helper()
	r := g.request(s)
	pool := state.NewPool(g.device, 1<<30)
	s.checkPositions(t, g, r)
	for _, depth := range depths {
		e, err := New(g.headed, pool, Options{Drafter: g.Drafter(), RoundTokens: 11, Tower: g.tower, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		r.Depth = depth
		ids, _ := said(t, e, r)
		e.Close()
		want := s.tokens[len(s.prompt):]
		for i := range want {
			if s.margin[i] < 1e-3 {
				break // either may come, and everything after it
			}
			if ids[i] != want[i] {
				t.Fatalf("depth %v: token %d is %d, want %d: %d", depth, i, ids[i], want[i], ids)
			}
		}
	}
	s.checkRows(t, g, pool, r)
}

// checkPositions compares those of the prompt, and where text goes on.
func (s *scene) checkPositions(t *testing.T, g *visionModel, r Request) {
	t.Helper()
	x, err := newInputs(r.Prompt, r.Inputs, g.Info())
	if err != nil {
		t.Fatal(err)
	}
	next := len(r.Prompt)
	if n := len(x.parts); n > 0 {
		last := &x.parts[n-1]
		next = last.after() + len(r.Prompt) - last.end()
	}
	if got := next - len(r.Prompt); got != s.delta {
		t.Errorf("after the prompt text goes on at %d from its slots, want %d", got, s.delta)
	}
	if s.positions[0] == nil || len(x.parts) == 0 {
		return
	}
	for slot, at := range x.positions(0, len(r.Prompt), 0) {
		if want := [3]int32{s.positions[0][slot], s.positions[1][slot], s.positions[2][slot]}; at != want {
			t.Errorf("position of slot %d is %d, want %d", slot, at, want)
		}
	}
}

// checkRows feeds the whole text of the reference to the model and to its head, at once.
func (s *scene) checkRows(t *testing.T, g *visionModel, pool *state.Pool, r Request) {
	t.Helper()
	r.Prompt = slices.Concat(r.Prompt, s.tokens[len(s.prompt):])
	n := len(s.prompt)
	queue := newVisionQueue(g.tower, g.device, 0)
	defer queue.close()
	x, err := newInputs(r.Prompt, r.Inputs, g.Info())
	if err != nil {
		t.Fatal(err)
	}
	for ready := false; !ready; {
		if ready, err = x.need(&queue, r.Salt, r.Priority, 0, len(r.Prompt), 0); err == nil {
			err = queue.step()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func(l state.Layout) *state.State {
		st, err := pool.Open(l)
		if err == nil {
			err = st.Reserve(len(r.Prompt))
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(st.Close)
		return st
	}
	last := len(r.Prompt)
	out, err := g.Forward([]model.Span{{
		State: open(g.Layout()), Tokens: r.Prompt, Want: last, Inputs: x.rows(0, last), Positions: x.positions(0, last, 0),
	}})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := out.Rows()
	if err != nil {
		t.Fatal(err)
	}
	s.compare(t, 0, rows[:n], 2e-4)
	hidden, err := out.Device.Host(out.Hidden)
	if err != nil {
		t.Fatal(err)
	}
	width := out.Hidden.Cols
	list := make([][]float32, n)
	for i := range list {
		list[i] = slices.Clone(hidden[i*width : (i+1)*width])
	}
	s.compare(t, 1, list, 2e-4)
	pairs := len(s.draft1)
	if out, err = g.Head().Forward([]model.Span{{
		State: open(g.Head().Layout()), Tokens: r.Prompt[1 : pairs+1], Want: pairs, Hidden: out.Hidden.RowRange(0, pairs),
		Inputs: x.rows(1, pairs+1), Positions: x.positions(0, pairs, 0),
	}}, nil); err != nil {
		t.Fatal(err)
	}
	if rows, err = out.Rows(); err != nil {
		t.Fatal(err)
	}
	s.compare(t, 2, rows[:n], 2e-4)
	for i, row := range rows {
		best := slices.Max(row)
		if got := slices.Index(row, best); got != int(s.draft1[i]) && best-row[s.draft1[i]] > 1e-3 {
			t.Errorf("draft after token %d is %d, %v above %d", i, got, best-row[s.draft1[i]], s.draft1[i])
		}
	}
}

// compare compares the last of some rows with an array of the reference, if there is one.
func (s *scene) compare(t *testing.T, i int, rows [][]float32, tolerance float64) {
	t.Helper()
	if i >= len(s.arrays) {
		return
	}
	for _, want := range s.arrays[i] {
		n := 1
		if len(want.Shape) > 1 {
			n = want.Shape[0]
		}
		var w golden.Worst
		for j := range n {
			w.Add(fmt.Sprintf("%s row %d", s.name, j), rows[len(rows)-n+j], want.Row(j))
		}
		w.Check(t, cmp.Or([]string{"logits", "hidden rows", "logits of the head"}[i], ""), tolerance)
	}
}

// TestImagesChangeNothing is the invariant of exactness for images with a real tower: with any
// drafts, in any rounds, however they are cut, beside texts, with rows kept or made again, with a
// prefix from the cache or from disk, and with memory taken away and given back, every request gives
// the tokens and the bits of logits that it gives alone and without drafts.
func TestImagesChangeNothing(t *testing.T) {
	g := openVision(t, "vision", model.Options{Quantize: 8}, 500, 501)
	plain, err := New(g.headed, state.NewPool(g.device, 1<<30), Options{Tower: g.tower})
	if err != nil {
		t.Fatal(err)
	}
	var pieces []piece
	scenes := randomScenes(t)
	for i := range 8 {
		s := scenes[i%len(scenes)]
		r := g.request(&s)
		r.Prompt = append(slices.Clip(r.Prompt), prompt(10*(i/len(scenes)), i)...)
		for j := range r.Prompt[len(s.prompt):] {
			r.Prompt[len(s.prompt)+j] %= 500
		}
		r.MaxTokens, r.Sampling = 10+i, sample.Options{Temperature: []float64{0, 0.8}[i%2], Seed: uint64(i)}
		r.Boundaries = []int{9, len(s.prompt)}
		p := piece{Request: r}
		p.ids, p.hashes = said(t, plain, r)
		pieces = append(pieces, p)
	}
	plain.Close()
	lookup, err := ngram.New(ngram.Options{})
	if err != nil {
		t.Fatal(err)
	}
	probe := &Engine{model: g.headed, o: Options{Drafter: g.Drafter()}}
	preempted, hits, read, kept := int64(0), int64(0), int64(0), int64(0)
	for depth := range spec.Depth(spec.MaxDepth + 1) {
		if brief(t) && depth%4 != 2 {
			continue
		}
		o := Options{
			Drafter: g.Drafter(), RoundTokens: []int{1, 5, 17, 512}[depth%4], Cache: depth%3 > 0, Tower: g.tower, TowerMemory: int64(depth % 2), Log: quiet,
		}
		budget := probe.bytes(100) * 2
		if depth%3 == 0 {
			budget *= 10
			o.Drafter = spec.Auto(g.Drafter(), lookup)
		}
		dir := t.TempDir()
		for run := range 2 { // the second finds the files of the first
			if run > 0 && !o.Cache {
				break
			}
			disk, err := store.OpenDisk(dir, store.DiskOptions{Bytes: 1 << 28, Fingerprint: "vision", Log: quiet})
			if err != nil {
				t.Fatal(err)
			}
			if o.Disk = disk; !o.Cache {
				o.Disk = nil
			}
			pool := state.NewPool(g.device, budget)
			gate := &gated{g.headed, make(chan int32), make(chan struct{})}
			e, err := New(gate, pool, o)
			if err != nil {
				t.Fatal(err)
			}
			requests := make([]Request, len(pieces))
			for i := range pieces {
				requests[i] = pieces[i].Request
				if requests[i].Depth = depth; depth == 0 && i%2 == 0 {
					requests[i].Depth = spec.DepthOff
				}
			}
			together(t, e, gate, requests, func(i int, s *Stream) {
				var ids []int32
				var hashes []uint64
				for token, err := range s.Tokens() {
					if err != nil {
						t.Errorf("depth %v, request %d: %v", depth, i, err)
					}
					ids, hashes = append(ids, token.ID), append(hashes, token.Hash)
				}
				if err := pieces[i].check(ids, hashes, true); err != nil {
					t.Errorf("depth %v, request %d: %v", depth, i, err)
				}
			})
			x := e.Stats()
			e.Close()
			disk.Close()
			preempted, hits, read, kept = preempted+x.Preemptions, hits+x.CachedTokens, read+disk.Stats().Read, kept+x.Tower.Cached
			if left := pool.Stats(); left.Used != 0 || left.States != 0 {
				t.Errorf("depth %v: left behind %+v", depth, left)
			}
		}
	}
	t.Logf("%d preemptions, %d tokens from the cache, %d files read, %d images whose rows were there", preempted, hits, read, kept)
	if min(preempted, hits, read, kept) == 0 {
		t.Error("not all of that has happened")
	}
}
