package bench

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/internal/state"
)

// recordRounds renews the rounds that the forced drafts of internal/engine are drawn from.
var recordRounds = flag.Bool("record", false, "write the rounds of BenchmarkConfidence to ../engine/testdata/rounds.txt")

// keptRounds is how many rounds of each temperature are written.
const keptRounds = 256

// round is a draft of the head with the head's probabilities in percent, and how much of it was
// accepted.
type round struct {
	accepted int
	percent  [spec.MaxDepth]int
}

func (r *round) compare(x *round) int {
	if c := cmp.Compare(r.accepted, x.accepted); c != 0 {
		return c
	}
	return slices.Compare(r.percent[:], x.percent[:])
}

// witness is a drafter that keeps the drafts of the one sequence there is, with their results: the
// text at the next call shows how much of a draft was accepted.
type witness struct {
	spec.Drafter
	tokens []int32 // last draft, as long as it can be; nil: none
	probs  []float32
	at     int // where it stands in the text
	rounds []round
}

func (w *witness) Draft(batch []spec.Run) ([]spec.Draft, error) {
	text := batch[0].Text
	if w.tokens != nil {
		r := round{}
		for r.accepted < len(w.tokens) && text[w.at+r.accepted] == w.tokens[r.accepted] {
			r.accepted++
		}
		for i, p := range w.probs {
			r.percent[i] = int(100*p + 0.5)
		}
		w.rounds = append(w.rounds, r)
	}
	drafts, err := w.Drafter.Draft(batch)
	if w.tokens = nil; err == nil && len(drafts[0].Tokens) == spec.MaxDepth {
		w.tokens, w.probs, w.at = slices.Clone(drafts[0].Tokens), slices.Clone(drafts[0].Probs), len(text)
	}
	return drafts, err
}

// BenchmarkConfidence decodes the prompts of all classes with the embedded model, the filters that
// it recommends and drafts of the maximum depth. It reports the acceptance of the first draft token
// by the probability that the head gave it. -record writes some of the rounds: after sorting, they
// are taken at equal distances, so that few of them have the distribution of all.
func BenchmarkConfidence(b *testing.B) {
	text, err := foretoken.Open(b.Context(), foretoken.Tiny, foretoken.Options{Threads: 1, KVMemory: 1 << 28})
	if err != nil {
		b.Fatal(err)
	}
	defer text.Close() //nolint:errcheck // frees memory only
	e, w := witnessed(b)
	defer e.Close()
	file := "# go test ./internal/bench -run - -bench Confidence -benchtime 1x -record\n# temperature, accepted draft tokens, the head's probability of each in percent\n"
	for _, temperature := range []float64{0, 0.6, 1} {
		b.Run(fmt.Sprintf("temperature=%g", temperature), func(b *testing.B) {
			for b.Loop() {
				w.rounds = nil
				decodeAll(b, text, e, w, temperature)
			}
			var drafted, accepted [5]float64
			for _, r := range w.rounds {
				bin := min(r.percent[0]/20, 4)
				drafted[bin]++
				if r.accepted > 0 {
					accepted[bin]++
				}
			}
			for i := range drafted {
				b.ReportMetric(measure.Ratio(accepted[i], drafted[i]), fmt.Sprintf("accepted-from-%d%%", 20*i))
				b.ReportMetric(drafted[i]/float64(len(w.rounds)), fmt.Sprintf("share-from-%d%%", 20*i))
			}
			slices.SortFunc(w.rounds, func(a, b round) int { return a.compare(&b) })
			for i := range keptRounds {
				r := &w.rounds[(2*i+1)*len(w.rounds)/(2*keptRounds)]
				file += fmt.Sprintf("%g %d %s\n", temperature, r.accepted, strings.Trim(fmt.Sprint(r.percent), "[]"))
			}
		})
	}
	if *recordRounds {
		filetest.Write(b, "../engine/testdata/rounds.txt", file)
	}
}

// witnessed is an engine of the embedded model with a witness.
func witnessed(b *testing.B) (*engine.Engine, *witness) {
	b.Helper()
	c := golden.Open(b, golden.Dir(b, "tiny"))
	dev := backendtest.Open(b, backend.Options{})
	m, err := model.Open(c, dev, model.Options{MaxDrafts: spec.MaxDepth})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() }) //nolint:errcheck // frees memory only
	w := &witness{Drafter: mtp.New(m.Head(), mtp.Options{Vocab: m.Info().Vocab})}
	e, err := engine.New(m, state.NewPool(dev, 1<<28), engine.Options{Drafter: w, MaxBatch: 1})
	if err != nil {
		b.Fatal(err)
	}
	return e, w
}

// decodeAll answers eight prompts of every class.
func decodeAll(b *testing.B, text *foretoken.Model, e *engine.Engine, w *witness, temperature float64) {
	b.Helper()
	for _, class := range Classes() {
		for i, prompt := range Prompts(class)[:8] {
			p := text.TextPrompt(prompt)
			if !Raw(class) {
				var err error
				if p, err = text.ChatPrompt(b.Context(), foretoken.Conversation{Messages: []chat.Message{{Role: "user", Content: chat.Text(prompt)}}}); err != nil {
					b.Fatal(err)
				}
			}
			sampling := text.Sampling()
			sampling.Temperature, sampling.Seed, sampling.Vocab = temperature, uint64(i+1), text.Vocab()
			w.tokens = nil
			s, err := e.Generate(b.Context(), engine.Request{
				Prompt: p.IDs, MaxTokens: 160, Sampling: sampling, IgnoreEnd: true, Depth: spec.FixedDepth(spec.MaxDepth),
			})
			if err != nil {
				b.Fatal(err)
			}
			for _, err := range s.Tokens() {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}
