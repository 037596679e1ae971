package engine

import (
	_ "embed"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/model/drafter"
	"github.com/foretoken/foretoken/internal/spec"
)

// recordedRounds has rounds of the embedded model, with the command that recorded them.
//
//go:embed testdata/rounds.txt
var recordedRounds string

// recordedRound is a draft of the embedded model's head: how many tokens were accepted, and the
// head's probability of each.
type recordedRound struct {
	accepted int
	probs    [drafter.MaxBlock]float32
}

// The tokens per round that are published for Qwen3.8-27B are those of chains in which a draft is accepted after the one before
// it with these probabilities, by the head and by its block drafter.
const (
	headLink  = 0.66
	blockLink = 0.75
)

// chained are rounds in which each draft is accepted with the same probability after the one before it, which the drafter knows.
func chained(link float64) []recordedRound {
	rng := rand.New(rand.NewPCG(3, 4))
	list := make([]recordedRound, 4096)
	for i := range list {
		x := &list[i]
		ended := false // the same draws decide about all drafters
		for j := range x.probs {
			x.probs[j] = float32(link)
			u := rng.Float64()
			if ended = ended || u >= link; !ended {
				x.accepted++
			}
		}
	}
	return evenly(list)
}

// evenly puts rounds in an order in which each 16 have about the acceptance of all: one of each sixteenth of them, sorted by
// acceptance. So a few dozen rounds suffice to compare two versions.
func evenly(list []recordedRound) []recordedRound {
	const parts = 16
	rng := rand.New(rand.NewPCG(1, 2))
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	slices.SortStableFunc(list, func(a, b recordedRound) int { return a.accepted - b.accepted })
	each := len(list) / parts
	order := make([]recordedRound, 0, parts*each)
	var of [parts][]int
	for k := range of {
		of[k] = rng.Perm(each)
	}
	for i := range each {
		for _, k := range rng.Perm(parts) {
			order = append(order, list[k*each+of[k][i]])
		}
	}
	return order
}

// roundsAt are the recorded rounds of a temperature.
func roundsAt(tb testing.TB, temperature float64) (list []recordedRound) {
	tb.Helper()
	for line := range strings.Lines(recordedRounds) {
		fields := strings.Fields(line)
		if at, err := strconv.ParseFloat(fields[0], 64); err != nil || at != temperature {
			continue // a comment, or another temperature
		}
		var r recordedRound
		r.accepted, _ = strconv.Atoi(fields[1])
		for i := range spec.MaxDepth {
			percent, err := strconv.Atoi(fields[2+i])
			if err != nil {
				tb.Fatal(err)
			}
			r.probs[i] = float32(percent) / 100
		}
		list = append(list, r)
	}
	if list == nil {
		tb.Fatalf("no rounds were recorded at temperature %g", temperature)
	}
	return evenly(list)
}

// times is how often something took time.
type times struct {
	n    int
	took time.Duration
}

// noted guards what is noted: the engine ends its last round after the answers.
var noted sync.Mutex

func note[K comparable](m map[K]*times, key K, took time.Duration) {
	noted.Lock()
	defer noted.Unlock()
	if m == nil {
		return
	}
	if m[key] == nil {
		m[key] = &times{}
	}
	m[key].n++
	m[key].took += took
}

func (s *times) String() string {
	return fmt.Sprintf("%d times %.0f µs", s.n, s.took.Seconds()*1e6/float64(s.n))
}

// logChoices prints the times of passes and of calls of drafters, and those that the controller expects. Logs of benchmarks are
// cut after ten lines.
func logChoices(name string, c *spec.Controller, passes map[int]*times, parts []*forced) {
	noted.Lock()
	defer noted.Unlock()
	fmt.Println("choices of", name)
	for _, rows := range slices.Sorted(maps.Keys(passes)) {
		fmt.Printf("  pass of %d rows: %v, expected %.0f\n", rows, passes[rows], 1e6*c.Level()*c.Pass(rows))
	}
	for k, p := range parts {
		for _, key := range slices.SortedFunc(maps.Keys(p.calls), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
			steps := key[0]
			if c.Blocks[k] > 0 {
				steps = min(steps, 1)
			}
			fmt.Printf("  drafter %d, depth %d, %d draft tokens: %v, expected %.0f\n", k, key[0], key[1], p.calls[key], 1e6*c.Level()*c.Draft(k, steps, key[1], 0))
		}
	}
}
