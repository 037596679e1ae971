package drafter_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/drafter"
	_ "github.com/foretoken/foretoken/internal/model/gemma"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/sample"
)

// openAssistant loads a model of the golden files and its assistant.
func openAssistant(tb testing.TB, name string, b backend.Backend, o model.Options) *rig {
	tb.Helper()
	return openOn(tb, name, golden.Open(tb, golden.Dir(tb, name+"/assistant")), b, o)
}

// clusters are those of the vocabulary, of which the reference draws from the best.
type clusters struct {
	centroids golden.Array
	order     []int32
	best      int
}

// clustersOf are those of a file, nil if there are none.
func clustersOf(tb testing.TB, c *checkpoint.Checkpoint) *clusters {
	tb.Helper()
	if !c.Has("masked_embedding.token_ordering") {
		return nil
	}
	x := &clusters{best: 4}
	m, err := c.Matrix("masked_embedding.centroids", 16, 32)
	if err != nil {
		tb.Fatal(err)
	}
	x.centroids = golden.Array{Shape: []int{m.Rows, m.Cols}, Data: make([]float32, m.Rows*m.Cols)}
	for i := range m.Rows {
		m.Row(x.centroids.Row(i), i)
	}
	order, err := c.Tensor("masked_embedding.token_ordering")
	if err != nil {
		tb.Fatal(err)
	}
	for raw := order.Data; len(raw) > 0; raw = raw[8:] {
		x.order = append(x.order, int32(binary.LittleEndian.Uint64(raw)))
	}
	return x
}

// hide makes the logits of other clusters than those that are best for a row minus infinity.
func (x *clusters) hide(logits, row []float32) {
	n := x.centroids.Shape[0]
	order, scores := make([]int, n), make([]float64, n)
	for i := range n {
		order[i] = i
		for j, c := range x.centroids.Row(i) {
			scores[i] += float64(c) * float64(row[j])
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		if scores[a] > scores[b] {
			return -1
		}
		return 1
	})
	size := len(x.order) / n
	for _, c := range order[x.best:] {
		for _, id := range x.order[c*size:][:size] {
			logits[id] = float32(math.Inf(-1))
		}
	}
}

// TestAssistantsDraftAsTheReference makes the guesses of all rounds of the golden files behind memory that grows token by token.
// Clusters of the vocabulary, which the reference has for some, are hidden here: we draft from all tokens.
func TestAssistantsDraftAsTheReference(t *testing.T) {
	for _, name := range golden.Gemma {
		t.Run(name, func(t *testing.T) {
			r := openAssistant(t, name, backendtest.Open(t, backend.Options{}), model.Options{Compute: backend.Float32})
			hidden := clustersOf(t, golden.Open(t, golden.Dir(t, name+"/assistant")))
			f := golden.Load(t, name)
			at, close := position(t, r.d)
			defer close()
			for i, c := range f.Cases {
				r.assists(t, f, i, hidden, r.d, func(j int) (ids []int32, margins []float32) { return c.Chain[j], c.ChainMargin[j] })
				r.assists(t, f, i, hidden, at, func(j int) (ids []int32, margins []float32) { return c.Draft1AtT[j : j+1], []float32{1} })
			}
		})
	}
}

// near compares numbers with the reference's, of which some are minus infinity.
func near(t *testing.T, what string, got, want []float32, tol float64) {
	t.Helper()
	for i, w := range want {
		if d := math.Abs(float64(got[i] - w)); got[i] != w && !(d <= tol) {
			t.Errorf("%s[%d] = %v, want %v", what, i, got[i], w)
			return
		}
	}
}

// position is the assistant with its queries at the position of the last row.
func position(t *testing.T, d *drafter.Drafter) (x *drafter.Drafter, done func()) {
	t.Helper()
	for _, r := range d.Repairs() {
		if r.Kind == "position" {
			x, err := r.Open()
			if err != nil {
				t.Fatal(err)
			}
			return x, func() { _ = x.Close() }
		}
	}
	t.Fatal("no other position is tried")
	return nil, nil
}

// assists compares the guesses of a case with the reference's.
func (r *rig) assists(t *testing.T, f *golden.Fixture, i int, hide *clusters, d *drafter.Drafter, want func(j int) ([]int32, []float32)) {
	t.Helper()
	c := f.Cases[i]
	s, width := r.Sequence(t), r.Info().Width
	from, wrong := 0, 0
	for j := range c.Chain {
		row := c.ChainFirst + j
		out, err := r.Forward([]model.Span{{State: s, Tokens: c.Tokens[from : row+1]}})
		if err != nil {
			t.Fatal(err)
		}
		n := row + 1 - from
		from = row + 1
		span := model.Span{Lender: s, At: row + 1, Tokens: c.Tokens[row+1 : row+2], Want: 1, Hidden: out.Hidden.RowRange(n-1, n)}
		ids, margins := want(j)
		stored := slices.Index(c.AssistantRows, row)
		for k, id := range ids {
			if out, err = d.Head.Forward([]model.Span{span}, nil); err != nil {
				t.Fatal(err)
			}
			logits, fed := modeltest.Rows(t, out)[0], r.Host(t, out.Hidden)
			if hide != nil {
				hide.hide(logits, r.Host(t, d.Last()))
			}
			if got := modeltest.Argmax(logits); got != id && float64(margins[k]) > golden.Tol.DraftMargin {
				t.Errorf("case %d, row %d, guess %d: token %d, want %d, margin %v", i, row, k, got, id, margins[k])
				wrong++
			}
			if stored >= 0 && d == r.d {
				near(t, fmt.Sprintf("case %d, row %d, guess %d: fed row", i, row, k), fed, f.Array(t, fmt.Sprintf("%d.assistant_hidden", i)).Data[(4*stored+k)*width:][:width], golden.Tol.Hidden)
				if i == 0 {
					near(t, fmt.Sprintf("row %d, guess %d: logits", row, k), logits, f.Array(t, "0.assistant_logits").Data[(4*stored+k)*len(logits):][:len(logits)], golden.Tol.Logits)
				}
			}
			if stored == 0 && d != r.d {
				near(t, "logits from the row's position", logits, f.Array(t, fmt.Sprintf("%d.assistant_logits_at_t", i)).Data, golden.Tol.Logits)
			}
			span.Tokens, span.Hidden = []int32{id}, out.Hidden
		}
		if wrong > 3 {
			t.Fatal("and more")
		}
	}
}

// TestAssistantsDraftOnTheDevice compares drafts that the device chains with those that the host does, in a batch whose sequences draft
// to several depths.
func TestAssistantsDraftOnTheDevice(t *testing.T) {
	const name = "gemma4_dense"
	host := openAssistant(t, name, backendtest.Open(t, backend.Options{}), model.Options{Compute: backend.Float32})
	device := openAssistant(t, name, backendtest.NewOpaque(backendtest.Open(t, backend.Options{})), model.Options{Compute: backend.Float32})
	for _, o := range []sample.Options{{}, {Temperature: 0.8}} {
		var all [2][]spec.Draft
		for k, r := range []*rig{host, device} {
			var runs []spec.Run
			for i, c := range golden.Load(t, name).Cases {
				s, n := r.Sequence(t), len(c.Prompt)
				out, err := r.Forward([]model.Span{{State: s, Tokens: c.Prompt}})
				if err != nil {
					t.Fatal(err)
				}
				o.Seed = uint64(i)
				sampler, err := sampling.New(o, nil)
				if err != nil {
					t.Fatal(err)
				}
				hidden := r.Upload(t, r.Host(t, out.Hidden))
				runs = append(runs, spec.Run{Target: s, Text: c.Tokens[:n+1], Hidden: hidden, Depth: 2 + i, Sampler: sampler})
			}
			all[k] = draft(t, r.drafts(-1), runs...)
		}
		for i, d := range all[0] {
			if !slices.Equal(d.Tokens, all[1][i].Tokens) || len(d.Tokens) != 2+i {
				t.Errorf("%+v, sequence %d: %v on the host, %v on the device", o, i, d.Tokens, all[1][i].Tokens)
			}
		}
	}
}

// TestAssistantsChangeNothing has requests of all depths meet in an engine with an assistant, with a prefix cache or without it, with
// memory for all or for a few, and with drafts that are always wrong: tokens and logits are those of plain decoding.
func TestAssistantsChangeNothing(t *testing.T) {
	for i, name := range golden.Gemma {
		o := model.Options{KVBits: []int{32, 8, 16, 4}[i]}
		t.Run(fmt.Sprintf("%s/kv=%d", name, o.KVBits), func(t *testing.T) {
			r := openAssistant(t, name, backendtest.NewOpaque(backendtest.Open(t, backend.Options{})), o)
			list := requests(r.Info().Vocab)
			alone := r.engine(t, 1<<26, engine.Options{Tower: tower{r}})
			want := make([]answer, len(list))
			for i, q := range list {
				want[i] = ask(t, alone, q)
			}
			alone.Close()
			need := spec.Needs(r.Layout(), r.drafts(-1), r.Info().Width)
			for _, c := range []laws{
				{r.drafts(-1), true, 1 << 26, 30},
				{r.drafts(-1), false, 3 * need.Bytes(150), 7},
				{wrong{r.drafts(-1), int32(r.Info().Vocab)}, true, 1 << 26, 50},
			} {
				c.compare(t, r, list, want)
			}
		})
	}
}

// TestAssistantsDraftOverDevices makes guesses with the layers of the model alternating between three devices, the head's weights on one.
func TestAssistantsDraftOverDevices(t *testing.T) {
	const name = "gemma4_ple"
	cpu := backendtest.Open(t, backend.Options{Threads: 1})
	opaque := backendtest.NewOpaque
	d, err := split.New(func(p backend.Part) int { return (p.Layer + int(p.Kind)) % 3 }, opaque(cpu), opaque(cpu), opaque(cpu))
	if err != nil {
		t.Fatal(err)
	}
	r := openAssistant(t, name, d, model.Options{Compute: backend.Float32})
	f := golden.Load(t, name)
	hidden := clustersOf(t, golden.Open(t, golden.Dir(t, name+"/assistant")))
	r.assists(t, f, 2, hidden, r.d, func(j int) ([]int32, []float32) { return f.Cases[2].Chain[j], f.Cases[2].ChainMargin[j] })
}

// TestAssistantsAreMeasured walks along a text that goes on as the reference's assistant guesses, behind the window: all guesses of the
// row before it are found. The self-test, which drafts to all depths, works on the same text.
func TestAssistantsAreMeasured(t *testing.T) {
	const name = "gemma4_dense"
	r := openAssistant(t, name, backendtest.Open(t, backend.Options{}), model.Options{Compute: backend.Float32})
	c := golden.Load(t, name).Cases[2]
	text := slices.Concat(c.Tokens[:c.ChainFirst+2], c.Chain[0], c.Tokens[:measure.AgreementDepth])[:c.ChainFirst+2+measure.AgreementDepth]
	a, err := measure.Walk(t.Context(), r.Model, r.drafts(-1), r.Pool, r.Info().Vocab, []*measure.Text{{IDs: text, Prompt: c.ChainFirst + 1}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if rates, rows := a.Rates(); rows != 1 || len(rates) < 3 || rates[0] != 1 || rates[2] != 1 {
		t.Errorf("rates %v of %d rows", rates, rows)
	}
	if _, err := measure.SelfTest(r.Model, r.Pool, r.drafts(-1), c.Tokens, measure.SelfTestOptions{Vocab: r.Info().Vocab, Limit: time.Millisecond}); err != nil {
		t.Error(err)
	}
}

// TestAssistantsOfOtherModels opens assistants for models that they were not made for.
func TestAssistantsOfOtherModels(t *testing.T) {
	for _, c := range [][3]string{
		{"gemma4_dense", "gemma4_unified", "backbone_hidden_size is 32, but the model's hidden rows have 64"},
		{"gemma4_dense", "gemma4_moe", "made for another model"},
		{"dense", "gemma4_dense", "made for another model"},
	} {
		r := modeltest.Open(t, golden.Dir(t, c[0]), 0, model.Options{})
		a := golden.Open(t, golden.Dir(t, c[1]+"/assistant"))
		_, err := drafter.Open(a, r.Model.(model.Lender), r.B, model.Options{})
		_, misfit := model.Fit(a, model.Target{Width: r.Info().Width, Vocab: r.Info().Vocab, Layers: r.Info().Layers, Layout: r.Layout()})
		for _, err := range []error{err, misfit} {
			if err == nil || !strings.Contains(err.Error(), c[2]) {
				t.Errorf("assistant of %s for %s: %v, want %q", c[1], c[0], err, c[2])
			}
		}
	}
}
