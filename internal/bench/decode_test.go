package bench

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/plot"
	"github.com/foretoken/foretoken/internal/spec"
)

// recorded is a report of what was once measured, worked out anew.
func recorded(t *testing.T) *DecodeReport {
	t.Helper()
	data := filetest.Read(t, "testdata/decode.json")
	r := &DecodeReport{}
	if err := json.Unmarshal(data, r); err != nil {
		t.Fatal(err)
	}
	r.settle()
	return r
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// All numbers wanted here were worked out by hand from testdata/decode.json.
func TestReportArithmeticOnRecordedRepeats(t *testing.T) {
	r := recorded(t)
	c := &r.Cells[1] // math, depth 2
	if !near(c.Rate.Median, 100/0.7) {
		t.Errorf("rate %v", c.Rate)
	}
	// Each repetition over plain's of the same one: 1/0.6, 2/1.3, 1.1/0.7.
	if !near(c.Ratio.Median, 1.1/0.7) || !near(c.Ratio.Low, 2/1.3) || !near(c.Ratio.High, 1/0.6) || !c.Noisy {
		t.Errorf("ratio %+v, noisy %v", c.Ratio, c.Noisy)
	}
	if !near(c.Acceptance, 180.0/240) || len(c.ByPosition) != 2 || !near(c.ByPosition[0], 0.9) || !near(c.ByPosition[1], 0.6) {
		t.Errorf("acceptance %v, by position %v", c.Acceptance, c.ByPosition)
	}
	if !near(c.TokensPerRound, 2.5) || !near(c.MeanDepth, 2) || !near(c.Rows, 3) {
		t.Errorf("%v tokens per round, depth %v, %v rows", c.TokensPerRound, c.MeanDepth, c.Rows)
	}
	// A pass is 0.5/40 where a plain one is 1/100; a draft token 0.08/80.
	if !near(c.Beta, 1.25) || !near(c.Delta, 0.1) || !near(c.Predicted, 2.5/1.45) {
		t.Errorf("β %v, δ %v, predicted %v", c.Beta, c.Delta, c.Predicted)
	}
	if story := &r.Cells[3]; story.Noisy || !near(story.Ratio.Median, 1.25) || !near(story.Acceptance, 0.5) || !near(story.Predicted, 2/1.5) {
		t.Errorf("story %+v", story)
	}
	if len(r.Totals) != 2 || !near(r.Totals[1].Ratio.Median, math.Sqrt(1.1/0.7*1.25)) || !near(r.Totals[1].Rate.Median, 200/1.5) || r.Noisy {
		t.Errorf("totals %+v", r.Totals)
	}
	if want := (Cost{Batch: 1, Depth: 2, Rows: 3, Beta: 1.275, Delta: 0.1, Time: 1.475, Gain: 2.25, Acceptance: 0.625, BreakEven: 0.2375}); len(r.Costs) != 1 || !near(r.Costs[0].Acceptance, want.Acceptance) || !near(r.Costs[0].BreakEven, want.BreakEven) || !near(r.Costs[0].Time, want.Time) || !near(r.Costs[0].Gain, want.Gain) || !near(r.Costs[0].Beta, want.Beta) {
		t.Errorf("costs %+v, want %+v", r.Costs, want)
	}
}

// openTiny opens the embedded model with its rounds observed.
func openTiny(t *testing.T) (*foretoken.Model, Runner) {
	t.Helper()
	recorder := &Recorder{}
	m, err := foretoken.Open(t.Context(), foretoken.Tiny, foretoken.Options{
		OnRound: recorder.ObserveModel, PrefixCache: foretoken.PrefixCache{Off: true},
		Threads: 1, MaxBatch: 2, MaxRound: time.Hour, Context: 512, KVMemory: 1 << 28,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m, recorder.OnModel(m)
}

// small is a grid that takes a moment.
func small(m *foretoken.Model) DecodeOptions {
	o := DecodeOptions{
		Classes: []string{"story"}, Temperatures: []float64{0.6}, Rules: []spec.Rule{spec.Exact}, Batches: []int{2},
		Depths: []int{2, AutoDepth}, Repeats: 2, MaxTokens: 12, Sampling: m.Sampling(), Contexts: []int{0}, Prompts: map[Text][][]int32{},
	}
	o.Sampling.Vocab = m.Vocab()
	at := Text{Class: "story"}
	for _, text := range Prompts("story")[:2] {
		o.Prompts[at] = append(o.Prompts[at], m.TextPrompt(text).IDs)
	}
	return o
}

func TestDecodeMeasuresTheEngine(t *testing.T) {
	m, run := openTiny(t)
	o := small(m)
	o.Rules = append(o.Rules, spec.Ratio)
	o.Batches = []int{1, 2}
	r, err := Decode(t.Context(), run, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 2*2*3 || !r.Exact() || len(r.Timeline) != 3 {
		t.Fatalf("%d cells, exact %v: %+v; %d tracks", len(r.Cells), r.Exact(), r.Mismatches, len(r.Timeline))
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		if len(c.Repeats) != 2 || c.Rate.Median <= 0 || c.Ratio.Median <= 0 || c.Different > 0 && c.exact() {
			t.Errorf("%v depth %d: %+v", c.Setting, c.Depth, c)
		}
		switch c.Depth {
		case 0:
			if c.Drafted != 0 || c.TokensPerRound != 1 || c.Beta != 1 {
				t.Errorf("plain: %+v", c)
			}
		case 2:
			if c.Drafted == 0 || c.Accepted > c.Drafted || c.DraftedAt[0] > c.Rounds || c.AcceptedAt[1] > c.AcceptedAt[0] || c.Delta <= 0 {
				t.Errorf("depth 2: %+v", c)
			}
		}
	}
}

// A fault in verification would show in one token, or in one bit of a logit. Both are put in
// by hand here, with drafts only: the report must say so.
func TestDecodeFindsWhatIsNotExact(t *testing.T) {
	m, run := openTiny(t)
	for name, spoil := range map[string]func(*Answer){
		"tokens": func(a *Answer) { a.Tokens[7]++ },
		"logits": func(a *Answer) { a.Hash ^= 1 },
	} {
		spoiled := func(ctx context.Context, batch []engine.Request) (*Run, error) {
			r, err := run(ctx, batch)
			if err == nil && batch[0].Depth == 2 {
				spoil(&r.Answers[1])
			}
			return r, err
		}
		r, err := Decode(t.Context(), spoiled, small(m))
		if err != nil {
			t.Fatal(err)
		}
		first := r.Mismatches[0]
		if r.Exact() || first.Depth != 2 || first.Prompt != 1 || name == "tokens" && first.Token != 7 || name == "logits" && first.Token != -1 {
			t.Errorf("%s: %+v", name, r.Mismatches)
		}
		if text := r.Text(plot.Style{}); !strings.Contains(text, "NOT EXACT: story") || !strings.Contains(text, "  NO\n") {
			t.Errorf("%s: the text does not say so:\n%s", name, text)
		}
		if page := r.Page(); !strings.Contains(page, `class="note bad">NOT EXACT`) {
			t.Errorf("%s: the page does not say so", name)
		}
	}
}

// The rule ratio promises a distribution: another text than plain decoding's is no fault, but
// one that changes from one repetition to the next is told.
func TestDecodeTellsRatioApart(t *testing.T) {
	m, run := openTiny(t)
	o := small(m)
	o.Rules = []spec.Rule{spec.Ratio}
	calls := int32(0)
	restless := func(ctx context.Context, batch []engine.Request) (*Run, error) {
		r, err := run(ctx, batch)
		if err == nil && batch[0].Depth == 2 {
			r.Answers[0].Tokens[3] = calls
			calls++
		}
		return r, err
	}
	r, err := Decode(t.Context(), restless, o)
	if err != nil || !r.Exact() || len(r.Mismatches) == 0 || !strings.Contains(r.Text(plot.Style{}), "Not repeatable: story") {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestDecodeReturnsFaults(t *testing.T) {
	broken := errors.New("broken")
	o := DecodeOptions{
		Classes: []string{"a"}, Temperatures: []float64{0}, Rules: []spec.Rule{spec.Exact}, Batches: []int{1}, Depths: []int{1}, Repeats: 1,
		Contexts: []int{7}, Prompts: map[Text][][]int32{{"a", 7}: {{1}}},
	}
	if _, err := Decode(t.Context(), func(context.Context, []engine.Request) (*Run, error) { return nil, broken }, o); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	o.Prompts = map[Text][][]int32{{"a", 0}: {{1}}}
	if _, err := Decode(t.Context(), nil, o); err == nil || !strings.Contains(err.Error(), `no prompts of the class "a" with context 7`) {
		t.Errorf("error %v", err)
	}
	o.Prompts = map[Text][][]int32{{"a", 7}: {{1}}}
	// Answers so short that no round is without a prompt give no rate.
	short := func(_ context.Context, batch []engine.Request) (*Run, error) {
		return &Run{Answers: make([]Answer, len(batch))}, nil
	}
	if _, err := Decode(t.Context(), short, o); err == nil || !strings.Contains(err.Error(), "set more tokens") {
		t.Errorf("error %v", err)
	}
}

// elements parses a page or drawing as XML and counts its elements. References to anything
// outside are faults.
func elements(t *testing.T, text string) map[string]int {
	t.Helper()
	count := map[string]int{}
	d := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(text, "<!doctype html>")))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return count
		}
		if err != nil {
			t.Fatal(err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		count[e.Name.Local]++
		for _, a := range e.Attr {
			switch name := a.Name.Local; {
			case name == "href" && a.Value != "data:,", name == "src", strings.HasPrefix(name, "on"), strings.Contains(a.Value, "NaN"), strings.Contains(a.Value, "url("):
				t.Errorf("%s of %s is %q", name, e.Name.Local, a.Value)
			}
		}
	}
}

func TestPagesNeedNothingFromElsewhere(t *testing.T) {
	decode := recorded(t)
	decode.Model = `</title><script>alert("x")</script>`
	serve := &ServeReport{URL: "http://127.0.0.1/v1", Model: "<b>", Loads: []Load{
		{Concurrency: 1, Requests: 2, TokensSec: 3, Faults: map[string]int{"<img src=x>": 1}, Failed: 1}, {Concurrency: 4}, {Rate: 2}, {Rate: 3},
	}}
	compare := &CompareReport{Model: "&", Peer: "<i>", Tests: []Test{{Name: "pp1", OurRates: []float64{2}, PeerRates: []float64{1}}}}
	compare.settle()
	for name, c := range map[string]struct {
		page  string
		plots []Plot
	}{
		"decode":  {decode.Page(), decode.Plots()},
		"serve":   {serve.Page(), serve.Plots()},
		"compare": {compare.Page(), compare.Plots()},
	} {
		got := elements(t, c.page)
		if got["script"]+got["img"]+got["b"]+got["i"]+got["iframe"] > 0 || got["svg"] != len(c.plots) || len(c.plots) == 0 || got["table"] == 0 {
			t.Errorf("%s: elements %v, %d plots", name, got, len(c.plots))
		}
		if strings.Contains(c.page, "@import") || strings.Contains(c.page, "url(") {
			t.Errorf("%s: the page refers to something outside", name)
		}
		for _, p := range c.plots {
			if f := elements(t, p.File()); f["svg"] != 1 || !strings.Contains(p.File(), `xmlns="http://www.w3.org/2000/svg"`) {
				t.Errorf("%s: %s is no file of its own", name, p.Name)
			}
		}
	}
}

func TestDecodeTextShowsEveryCell(t *testing.T) {
	r := recorded(t)
	text := r.Text(plot.Style{ASCII: true})
	for _, want := range []string{
		"recorded on a processor", "1.571 (1.538 to 1.667) ~", "0.90 0.60", "1.250 (1.250 to 1.250)",
		"the 95 % interval", "1.402 (1.387 to 1.443)         story\n", "101 tokens, top-k 20, 3 repetitions", "should agree with the means within 5 %", "bit for bit of the logits",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	// Without the quiet half the interval is too wide, and that is said.
	r.Cells = r.Cells[:2]
	r.settle()
	if text := r.Text(plot.Style{}); !r.Noisy || !strings.Contains(text, "The machine is too noisy") || strings.Contains(text, "Slower than plain") {
		t.Errorf("noise is not told:\n%s", text)
	}
}

// TestDecodeTellsWhereItIsSlower makes one class slower than plain decoding: first so much that the
// mean is below the floor too, then so little that only its interval is, then within the floor.
func TestDecodeTellsWhereItIsSlower(t *testing.T) {
	mean, class := "Slower than plain decoding: batch 1, temperature 0, rule exact, depth 2: 0.7", "depth 2: the interval of story is below 0.99."
	for _, x := range []struct {
		seconds     float64
		mean, class bool
	}{{3, true, true}, {1.02, false, true}, {1 / 0.995, false, false}} {
		r := recorded(t)
		for i := range r.Cells[3].Repeats {
			r.Cells[3].Repeats[i].Seconds = x.seconds
		}
		r.settle()
		text := r.Text(plot.Style{})
		if strings.Contains(text, mean) != x.mean || strings.Contains(text, class) != x.class || (len(r.Totals[1].Slower) > 0) != x.class {
			t.Errorf("%v seconds: %+v\n%s", x.seconds, r.Totals[1], text)
		}
	}
}

func TestReportSurvivesJSON(t *testing.T) {
	r := recorded(t)
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	again := &DecodeReport{}
	if err := json.Unmarshal(data, again); err != nil {
		t.Fatal(err)
	}
	if again.settle(); !reflect.DeepEqual(r, again) {
		t.Errorf("%+v\n%+v", r, again)
	}
}

func TestPromptsAreThere(t *testing.T) {
	for _, class := range Classes() {
		if n := len(Prompts(class)); n < 8 {
			t.Errorf("%d prompts of the class %s", n, class)
		}
	}
	if Prompts("nothing") != nil {
		t.Error("prompts of a class that does not exist")
	}
}
