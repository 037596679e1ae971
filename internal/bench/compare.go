package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/plot"
	"github.com/foretoken/foretoken/internal/spec"
)

// CompareOptions say what to compare. Lengths are those of llama-bench: prefill of Prompts
// tokens and generation of Generates tokens, each after Depths tokens of context, one sequence,
// without speculative decoding. A length of 0 is no test, as there.
type CompareOptions struct {
	File      string // the model, for the peer
	Threads   int
	Prompts   []int
	Generates []int
	Depths    []int // nil: from an empty context
	Repeats   int   // repetitions; each is one run of the peer and one of ours
	Vocab     int   // ids of the model
	Progress  func(what string)
}

// CompareReport is a peer's speed and ours.
type CompareReport struct {
	Model   string `json:"model"`
	Device  string `json:"device"`
	Load    string `json:"machine_load,omitempty"`
	Peer    string `json:"peer"`  // its program
	Build   string `json:"build"` // as it says
	Threads int    `json:"threads"`
	Repeats int    `json:"repeats"`
	Tests   []Test `json:"tests"`

	// Highest resident memory of the two processes so far, 0 where the system does not tell.
	OurMemory  int64 `json:"our_memory_bytes,omitempty"`
	PeerMemory int64 `json:"peer_memory_bytes,omitempty"`
}

// Test is one length. Rates are tokens per second, by repetition.
type Test struct {
	Name      string    `json:"name"` // as llama-bench calls it: pp512, tg128, pp512 @ d4096
	OurRates  []float64 `json:"our_rates"`
	PeerRates []float64 `json:"peer_rates"`

	Ours  measure.Spread `json:"ours"`
	Peer  measure.Spread `json:"peer"`
	Ratio measure.Spread `json:"ratio"` // ours over the peer's of the same repetition
	Noisy bool           `json:"noisy"`

	prompt, generate, depth int
}

// Compare runs the peer and our engine alternately on the same file.
func Compare(ctx context.Context, peer Peer, run Runner, o CompareOptions) (*CompareReport, error) {
	r := &CompareReport{Peer: filepath.Base(peer[0]), Threads: o.Threads, Repeats: o.Repeats}
	if o.Depths == nil {
		o.Depths = []int{0}
	}
	for _, depth := range o.Depths {
		for _, n := range o.Prompts {
			r.Tests = append(r.Tests, Test{Name: fmt.Sprintf("pp%d", n), prompt: n, depth: depth})
		}
		for _, n := range o.Generates {
			r.Tests = append(r.Tests, Test{Name: fmt.Sprintf("tg%d", n), generate: n, depth: depth})
		}
	}
	r.Tests = slices.DeleteFunc(r.Tests, func(t Test) bool { return t.prompt+t.generate == 0 })
	for i := range r.Tests {
		if t := &r.Tests[i]; t.depth > 0 {
			t.Name += fmt.Sprintf(" @ d%d", t.depth)
		}
	}
	warm := r.Tests[len(r.Tests)-1]
	warm.depth = 0
	if _, err := warm.rate(ctx, run, o.Vocab, 0); err != nil { // the peer warms up each time, without a context, too
		return nil, err
	}
	if err := fill(ctx, run, &o); err != nil {
		return nil, err
	}
	for n := range o.Repeats {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("repetition %d of %d", n+1, o.Repeats))
		}
		sides := []func() error{
			func() error { return r.theirs(ctx, peer, &o) },
			func() error { return r.ours(ctx, run, o.Vocab, n+1) },
		}
		if n%2 == 1 { // sides alternate in going first
			slices.Reverse(sides)
		}
		for _, side := range sides {
			if err := side(); err != nil {
				return nil, err
			}
		}
	}
	r.OurMemory = ownMemory()
	r.settle()
	return r, nil
}

// theirs runs the peer once.
func (r *CompareReport) theirs(ctx context.Context, peer Peer, o *CompareOptions) error {
	results, memory, err := peer.Run(ctx, o)
	if err != nil {
		return err
	}
	r.PeerMemory = max(r.PeerMemory, memory)
	for i := range r.Tests {
		t := &r.Tests[i]
		at := slices.IndexFunc(results, func(p PeerResult) bool {
			return p.Prompt == t.prompt && p.Generate == t.generate && p.Depth == t.depth
		})
		if at < 0 {
			return fmt.Errorf("bench: peer %s: it did not measure %s", r.Peer, t.Name)
		}
		if n := results[at].Threads; n != 0 && n != o.Threads {
			return fmt.Errorf("bench: peer %s: it ran on %d threads, foretoken on %d", r.Peer, n, o.Threads)
		}
		t.PeerRates = append(t.PeerRates, results[at].Rate)
		r.Build = results[at].Build
	}
	return nil
}

// fill computes the contexts of all depths, which our prefix cache keeps for the repetitions.
func fill(ctx context.Context, run Runner, o *CompareOptions) error {
	for _, depth := range o.Depths {
		if depth == 0 {
			continue
		}
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("computing %d tokens of context", depth))
		}
		q := engine.Request{Prompt: prompt(depth, 0, o.Vocab, 0), MaxTokens: 1, IgnoreEnd: true, Depth: spec.DepthOff}
		if _, err := run(ctx, []engine.Request{q}); err != nil {
			return err
		}
	}
	return nil
}

// prompt is depth tokens of context, always the same, and n tokens that are others for each
// repetition. Which they are does not matter for the time, unless a cache knows them.
func prompt(depth, n, vocab, repetition int) []int32 {
	ids := make([]int32, depth+n)
	for i := range ids {
		ids[i] = int32((i*7919 + 1) % vocab)
		if i >= depth {
			ids[i] = int32((i*7919 + 2 + repetition) % vocab)
		}
	}
	return ids
}

// ours measures every test once.
func (r *CompareReport) ours(ctx context.Context, run Runner, vocab, repetition int) error {
	for i := range r.Tests {
		rate, err := r.Tests[i].rate(ctx, run, vocab, repetition*len(r.Tests)+i)
		if err != nil {
			return err
		}
		r.Tests[i].OurRates = append(r.Tests[i].OurRates, rate)
	}
	return nil
}

// rate measures our engine: the rounds that feed the last tokens of the prompt, or those that
// generate one token each.
func (t *Test) rate(ctx context.Context, run Runner, vocab, repetition int) (float64, error) {
	q := engine.Request{Prompt: prompt(t.depth, max(t.prompt, 1), vocab, repetition), IgnoreEnd: true, Depth: spec.DepthOff}
	q.MaxTokens = t.generate + 1 // the first comes with the prompt
	x, err := run(ctx, []engine.Request{q})
	if err != nil {
		return 0, err
	}
	seconds, left := 0.0, t.prompt
	for _, round := range slices.Backward(x.Rounds) {
		switch {
		case t.generate > 0 && round.Prompt == 0:
			seconds += round.Took.Seconds()
		case t.generate == 0 && round.Prompt > 0:
			n := min(left, round.Prompt)
			seconds += round.Took.Seconds() * float64(n) / float64(round.Prompt)
			left -= n
		}
	}
	return measure.Ratio(float64(t.prompt+t.generate), seconds), nil
}

// settle works out what follows from the rates.
func (r *CompareReport) settle() {
	for i := range r.Tests {
		t := &r.Tests[i]
		list := make([]float64, len(t.OurRates))
		for j := range list {
			list[j] = measure.Ratio(t.OurRates[j], t.PeerRates[j])
		}
		t.Ours, t.Peer, t.Ratio = measure.NewSpread(t.OurRates), measure.NewSpread(t.PeerRates), measure.NewSpread(list)
		t.Noisy = t.Ratio.Noisy()
	}
}

func (r *CompareReport) head() string {
	line := fmt.Sprintf("%s on %s beside %s (build %s): %d threads each, %d repetitions, medians; in brackets the 95 %% interval.", r.Model, r.Device, r.Peer, r.Build, r.Threads, r.Repeats)
	if r.OurMemory > 0 && r.PeerMemory > 0 {
		most := ""
		if r.PeerMemory <= r.OurMemory { // Linux counts what the process had of ours before it became the peer
			most = "at most "
		}
		line += fmt.Sprintf(" Highest resident memory: %.2f GB, the peer's %s%.2f GB.", float64(r.OurMemory)/1e9, most, float64(r.PeerMemory)/1e9)
	}
	if r.Load != "" {
		line += " " + r.Load
	}
	return line
}

func (r *CompareReport) rows() [][]string {
	rows := append(make([][]string, 0, 1+len(r.Tests)), []string{"test", "peer tok/s", "ours tok/s", "ours / peer", ""})
	for i := range r.Tests {
		t := &r.Tests[i]
		noisy := ""
		if t.Noisy {
			noisy = "the machine is too noisy for better"
		}
		rows = append(rows, []string{t.Name, number(t.Peer.Median), number(t.Ours.Median), t.Ratio.String(), noisy})
	}
	return rows
}

// Text is the report for a terminal.
func (r *CompareReport) Text(s plot.Style) string {
	text := plain(r.head()) + "\n\n" + align(r.rows())
	for _, c := range r.charts() {
		text += "\n" + bars(c, s)
	}
	return text
}

// Page is the report as one HTML page that needs nothing from elsewhere.
func (r *CompareReport) Page() string {
	p := newPage(r.Model + ": foretoken bench compare")
	p.text(r.head())
	p.table(r.rows())
	p.section("Tokens per second", r.Plots()...)
	return p.end()
}

// Plots are the drawings of the report.
func (r *CompareReport) Plots() []Plot {
	list := make([]Plot, len(r.Tests))
	for i, c := range r.charts() {
		list[i] = Plot{"compare-" + strings.ReplaceAll(r.Tests[i].Name, " @ ", "-"), c.SVG()}
	}
	return list
}

func (r *CompareReport) charts() []plot.Bars {
	list := make([]plot.Bars, len(r.Tests))
	for i := range r.Tests {
		t := &r.Tests[i]
		list[i] = plot.Bars{Title: t.Name + ", tokens per second", Bars: []plot.Bar{
			{Label: "peer", Value: t.Peer.Median, Text: number(t.Peer.Median)},
			{Label: "foretoken", Value: t.Ours.Median, Text: number(t.Ours.Median), Strong: true},
		}}
	}
	return list
}
