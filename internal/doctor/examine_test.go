package doctor

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/plot"
)

// reference is the share of positions whose first 1, 2, 3 draft tokens are accepted, by the
// reference implementation.
var reference = []float64{0.731, 0.561, 0.451}

// near demands that rates begin with the reference's.
func near(t *testing.T, what string, rates []float64) {
	t.Helper()
	for d, want := range reference {
		if math.Abs(rates[d]-want) > 0.03 {
			t.Errorf("%s: the first %d draft tokens are accepted at %.3f of the positions, want %.3f", what, d+1, rates[d], want)
		}
	}
}

func TestExamineFindsTinySound(t *testing.T) {
	facts, m, b := load(t, openEdited(t, editTiny(t, asIs, nil)))
	r, err := Examine(t.Context(), facts, m, b, ExamineOptions{Limit: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Healthy || len(r.Findings) != 0 || !strings.Contains(r.Verdict, "intact") || r.Perplexity < 40 || r.Perplexity > 80 || r.Positions < 400 {
		t.Errorf("healthy %v, %q, %+v, perplexity %v, %d positions", r.Healthy, r.Verdict, r.Findings, r.Perplexity, r.Positions)
	}
	near(t, "on its own text", r.used().Rates)
	if len(r.Trials) != 5 || r.used().Name != "hidden state after the final norm" {
		t.Errorf("trials %+v", r.Trials)
	}
	checkCosts(t, r)
	checkOutputs(t, r)
}

// bare is a model and a head without the optional interfaces.
type bare struct{ model.Model }

func (m bare) Head() model.Head { return struct{ model.Head }{m.Model.Head()} }

func TestExamineNeedsNoMoreThanAHead(t *testing.T) {
	facts, m, b := load(t, openEdited(t, editTiny(t, asIs, nil)))
	r, err := Examine(t.Context(), facts, bare{m}, b, ExamineOptions{Prompts: prompts[:4], Tokens: 24, Limit: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Trials) != 2 || r.Trials[0].Kind != "hidden" || !r.Trials[0].Used || r.Trials[1].Kind != "vocabulary" {
		t.Errorf("trials %+v", r.Trials)
	}
	if rate := r.used().Rates[0]; !r.Healthy || rate < 0.6 {
		t.Errorf("healthy %v, the first draft token is accepted at %.3f of the positions", r.Healthy, rate)
	}
}

// checkCosts checks properties of any measured numbers.
func checkCosts(t *testing.T, r *Report) {
	t.Helper()
	c := r.Costs
	if c.Step <= 0 || len(c.Beta) != 1+maxDepth || c.Beta[0] != 1 || !slices.IsSorted(c.Beta) || len(c.Delta) != 2 {
		t.Fatalf("costs %+v", c)
	}
	for _, d := range c.Delta {
		if len(d.Cost) != maxDepth || d.Cost[0] <= 0 || !slices.IsSorted(d.Cost) {
			t.Errorf("draft vocabulary of %d: %v", d.DraftVocab, d.Cost)
		}
	}
	if len(r.Speeds) != 1+2*maxDepth {
		t.Fatalf("speeds %+v", r.Speeds)
	}
	for i, s := range r.Speeds {
		if s.Speedup > r.Best.Speedup || s.TokensPerRound < 1 || s.TokensPerRound > float64(1+s.Depth) || i == 0 && s.Speedup != 1 {
			t.Errorf("speed %+v, best %+v", s, r.Best)
		}
		if i > 1 && s.Depth > 1 && s.TokensPerRound < r.Speeds[i-1].TokensPerRound {
			t.Errorf("depth %d gives %.3f tokens a round, one less %.3f", s.Depth, s.TokensPerRound, r.Speeds[i-1].TokensPerRound)
		}
	}
}

// checkOutputs is about the forms of a report.
func checkOutputs(t *testing.T, r *Report) {
	t.Helper()
	plain := r.Text(plot.Style{ASCII: true})
	for _, want := range []string{"perplexity", "draft token 1 ", "(used)", "pass over 2 rows", "5 draft tokens, vocabulary of", "no draft", "verdict", "advice"} {
		if !strings.Contains(plain, want) {
			t.Errorf("the report does not say %q:\n%s", want, plain)
		}
	}
	if i := strings.IndexFunc(plain, func(r rune) bool { return r > '~' || r < ' ' && r != '\n' }); i >= 0 {
		t.Errorf("not ASCII: %q", plain[i:])
	}
	if colored := r.Text(plot.Style{Color: true}); !strings.Contains(colored, "█") || !strings.Contains(colored, "\x1b[32m") {
		t.Errorf("no bars, or no colors:\n%s", colored)
	}
	checkPage(t, r)
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back struct {
		Name, Verdict string
		Perplexity    float64
		Acceptance    []trial
		Model         struct{ Parameters int64 }
	}
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if back.Verdict != r.Verdict || back.Perplexity != r.Perplexity || len(back.Acceptance) != len(r.Trials) || back.Model.Parameters == 0 || strings.Contains(string(data), "null") {
		t.Errorf("JSON %s", data)
	}
}

// checkPage checks that the page is well-formed and self-contained, for any
// name of the model.
func checkPage(t *testing.T, r *Report) {
	t.Helper()
	facts := *r.Facts
	facts.Name = `<script>"&'</script>`
	hostile := *r
	hostile.Facts = &facts
	for _, page := range []string{r.Page(), hostile.Page()} {
		low := strings.ToLower(page)
		for _, bad := range []string{"http:", "https:", "<script", "src=", "href=", "@import", "url("} {
			if strings.Contains(low, bad) {
				t.Errorf("the page has %q", bad)
			}
		}
		elements := map[string]int{}
		d := xml.NewDecoder(strings.NewReader(page))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("the page is not well-formed: %v", err)
			}
			if e, ok := token.(xml.StartElement); ok {
				elements[e.Name.Local]++
			}
		}
		if elements["svg"] != 4 || elements["html"] != 1 || elements["rect"] != len(r.Trials) {
			t.Errorf("elements %v", elements)
		}
	}
	if !strings.Contains(r.Page(), "prefers-color-scheme:dark") {
		t.Error("no dark style")
	}
}

// TestAgreementIsTheReferences measures the head on the texts of the reference.
func TestAgreementIsTheReferences(t *testing.T) {
	_, m, b := load(t, openEdited(t, editTiny(t, asIs, nil)))
	p := newRunner(t.Context(), m, b, m.Info().Vocab)
	f := golden.Load(t, "tiny")
	var texts []*measure.Text
	for _, c := range f.Cases[:4] {
		x, err := p.prefill(c.Tokens, func(int, []float32) {})
		if err != nil {
			t.Fatal(err)
		}
		x.Prompt = len(c.Prompt)
		texts = append(texts, x)
	}
	e := &examination{runner: p, texts: texts}
	results, err := e.agree(m.Head(), 3, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	rates, rows := results[0].Rates()
	if rows < 500 {
		t.Errorf("%d rows", rows)
	}
	want := make([]float64, 3) // of the same rows, by the reference's own draft tokens
	for i, c := range f.Cases[:4] {
		from, to := texts[i].Rows()
		for r := from; r < to; r++ {
			for d, drafts := range [][]int32{c.Draft1, c.Draft2, c.Draft3} {
				if drafts[r] != c.Tokens[r+2+d] {
					break
				}
				want[d]++
			}
		}
	}
	for d := range want {
		if math.Abs(rates[d]-want[d]/float64(rows)) > golden.Tol.Acceptance {
			t.Errorf("the first %d draft tokens are accepted at %.4f of the positions, the reference's at %.4f", d+1, rates[d], want[d]/float64(rows))
		}
	}
}

// damage is something wrong with a model that only measuring shows.
type damage struct {
	name            string
	files           func(t *testing.T) map[string]string
	verdict, remedy string
}

func edited(e edit) func(*testing.T) map[string]string {
	return func(t *testing.T) map[string]string { return editTiny(t, e, nil) }
}

// TestExamineFindsOutWhatIsWrong damages the head, and in the end the model.
func TestExamineFindsOutWhatIsWrong(t *testing.T) {
	const swap = "foretoken mtp inject --model edited --head FILE --out DIR --force"
	cases := []damage{
		{"no head", edited(withoutHead), "head is missing", "foretoken mtp inject --model edited --head FILE"},
		{"norms shifted twice", edited(shiftedTwice), "all norms of the head were shifted by one twice", swap},
		{"some norms not shifted", edited(neverShifted), "the norms before fc were not shifted by one", swap},
		{"fc permuted", edited(permuted), "its first input is the hidden state", swap},
		{"random head", edited(randomized()), "drafts at random", swap},
		{"coarse head", coarse, "too few bits: with 2 bits", "foretoken convert --model ORIGINAL --out DIR --mtp-bits 8"},
		{"pre_norm", preNorm, "gets the wrong hidden state", `remove "mtp_hidden_state_mode" from config.json`},
		{"random model", edited(randomModel()), "The perplexity on plain text is", "foretoken convert --model ORIGINAL"},
	}
	if testing.Short() {
		cases = cases[:2]
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := backendtest.Open(t, backend.Options{Threads: 1})
			facts, m := loadOn(t, openEdited(t, c.files(t)), b)
			o := ExamineOptions{Prompts: prompts[:3], Tokens: 30, Limit: 1}
			if c.name == "pre_norm" {
				o = ExamineOptions{Limit: time.Hour} // the difference is small: many draft tokens are needed to be sure
			}
			r, err := Examine(t.Context(), facts, m, b, o)
			if err != nil {
				t.Fatal(err)
			}
			if r.Healthy || len(r.Findings) == 0 || !strings.Contains(r.Verdict, c.verdict) || !strings.Contains(r.Findings[0].Remedy, c.remedy) {
				t.Errorf("%q, %+v", r.Verdict, r.Findings)
			}
			if text := strings.Join(strings.Fields(r.Text(plot.Style{})), " "); !strings.Contains(text, c.verdict) || !strings.Contains(text, c.remedy) {
				t.Errorf("the report does not say so:\n%s", text)
			}
		})
	}
}

func preNorm(t *testing.T) map[string]string {
	files := editTiny(t, asIs, nil)
	files["config.json"] = strings.Replace(files["config.json"], `"mtp_num_hidden_layers"`, `"mtp_hidden_state_mode": "pre_norm", "mtp_num_hidden_layers"`, 1)
	return files
}

func randomModel() edit {
	rng := rand.New(rand.NewPCG(5, 6))
	return func(name string, data []byte) bool {
		if strings.HasPrefix(name, "model.") && strings.HasSuffix(name, ".weight") && !strings.Contains(name, "norm") && !strings.Contains(name, "conv") {
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
		}
		return true
	}
}

// coarse is tiny with the matrices of its head quantized to 2 bits.
func coarse(t *testing.T) map[string]string {
	files := editTiny(t, asIs, nil)
	c := openEdited(t, files)
	isMatrix := func(name string) bool {
		return strings.Contains(name, "mtp.") && c.Has(strings.TrimSuffix(name, ".weight")+".scales")
	}
	return rewrite(t, c, files, func(name string, cols int) (dtype.Matrix, bool) {
		if !strings.HasSuffix(name, ".weight") || !isMatrix(name) {
			return dtype.Matrix{}, false
		}
		x, _ := c.Look(name)
		m, err := c.Matrix(strings.TrimSuffix(name, ".weight"), x.Shape[0], cols)
		if err != nil {
			t.Fatal(err)
		}
		q, err := dtype.NewAffine(m.Rows, m.Cols, 2, 64, dtype.F16)
		if err == nil {
			err = dtype.QuantizeRows(&q, &m, 0, m.Rows)
		}
		if err != nil {
			t.Fatal(err)
		}
		return q, true
	})
}

// rewrite is files with some of the quantized matrices replaced.
func rewrite(t *testing.T, c *checkpoint.Checkpoint, files map[string]string, replace func(name string, cols int) (dtype.Matrix, bool)) map[string]string {
	t.Helper()
	var decls []checkpoint.Decl
	var contents [][]byte
	add := func(name string, typ dtype.Type, data []byte, shape ...int) {
		decls = append(decls, checkpoint.Decl{Name: name, Type: typ, Shape: shape})
		contents = append(contents, data)
	}
	replaced := map[string]bool{}
	for _, name := range c.Tensors() {
		x, _ := c.Look(name)
		if x.Type != dtype.U32 {
			continue
		}
		if m, ok := replace(name, 4*x.Shape[1]); ok { // of 8 bits, four to a word
			module := strings.TrimSuffix(name, ".weight")
			add(name, dtype.U32, m.Data, m.Rows, m.RowBytes()/4)
			add(module+".scales", m.ScaleType, m.Scales, m.Rows, m.Groups())
			add(module+".biases", m.ScaleType, m.Biases, m.Rows, m.Groups())
			for _, part := range []string{".weight", ".scales", ".biases"} {
				replaced[module+part] = true
			}
		}
	}
	for _, name := range c.Tensors() {
		if replaced[name] {
			continue
		}
		x, err := c.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		add(name, x.Type, x.Data, x.Shape...)
	}
	files["model.safetensors"] = golden.Tensors(t, decls, contents, map[string]string{"format": "mlx"})
	return files
}

func TestExamineEndsWithItsContext(t *testing.T) {
	facts, m, b := load(t, openEdited(t, editTiny(t, asIs, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	stages := 0
	_, err := Examine(ctx, facts, m, b, ExamineOptions{Progress: func(string) {
		if stages++; stages == 2 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || stages != 2 {
		t.Errorf("%v after %d stages", err, stages)
	}
	facts.Loadable = false
	if _, err := Examine(t.Context(), facts, m, b, ExamineOptions{}); err == nil {
		t.Error("a model that cannot be loaded was measured")
	}
}

// TestVerdictWhereDraftingIsNotFaster is about a sound head on a slow processor.
func TestVerdictWhereDraftingIsNotFaster(t *testing.T) {
	facts, m, b := load(t, openEdited(t, editTiny(t, asIs, nil)))
	r, err := Examine(t.Context(), facts, m, b, ExamineOptions{Prompts: prompts[:2], Tokens: 24, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	e := &examination{runner: newRunner(t.Context(), m, b, m.Info().Vocab), Report: r}
	r.Costs = &measure.Costs{Step: 1, Beta: []float64{1, 2, 3, 4, 5, 6}, Delta: []measure.DraftCosts{{DraftVocab: 8192, Cost: []float64{1, 2, 3, 4, 5}}}}
	r.Speeds, r.Verdict = nil, ""
	e.speeds()
	r.judge()
	if r.Best.Depth != 0 || !r.Healthy || !strings.Contains(r.Verdict, "not faster than plain decoding on this machine") || !strings.Contains(r.Text(plot.Style{}), "--mtp=off, or --draft ngram") {
		t.Errorf("%+v, %q", r.Best, r.Verdict)
	}
}
