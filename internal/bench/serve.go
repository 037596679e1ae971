package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/measure"
)

// ServeOptions say how a server is loaded: by every load in every repetition, Concurrency before
// Rates.
type ServeOptions struct {
	Classes     []string
	Concurrency []int     // requests at a time: as one ends the next is sent
	Rates       []float64 // requests per second on average, sent at random moments whatever has ended
	Requests    int       // of each load in a repetition
	Repeats     int       // repetitions, each with every load
	MaxTokens   int
	Temperature float64
	Limit       time.Duration // for one request

	// An answer is good if its time to first token is at most TTFTGoal and its mean time per
	// output token after that at most TPOTGoal. 0: unlimited.
	TTFTGoal, TPOTGoal time.Duration

	Progress func(what string)
}

// ServeReport is what a server gives under load.
type ServeReport struct {
	URL       string  `json:"url"`
	Model     string  `json:"model"`
	Load      string  `json:"machine_load,omitempty"` // of this machine, as far as it is known
	MaxTokens int     `json:"max_tokens"`
	TTFTGoal  float64 `json:"ttft_goal_ms"`
	TPOTGoal  float64 `json:"tpot_goal_ms"`
	Loads     []Load  `json:"loads"`
}

// Load is the result of one load. Times are in milliseconds, of successful requests.
type Load struct {
	Concurrency int     `json:"concurrency,omitempty"`
	Rate        float64 `json:"rate,omitempty"` // requests per second that were sent
	Requests    int     `json:"requests"`
	Seconds     float64 `json:"seconds"` // from the first request to the last answer, of all repetitions
	Tokens      int     `json:"tokens"`

	TTFT      Percentiles    `json:"ttft_ms"`    // time to first token: to the first text
	TPOT      Percentiles    `json:"tpot_ms"`    // time per output token: mean of a request, after the first
	ITL       Percentiles    `json:"itl_ms"`     // inter-token latency: between two pieces of text, which may be several tokens
	Latency   Percentiles    `json:"latency_ms"` // of the whole answer
	TokensSec float64        `json:"tokens_per_second"`
	Answers   float64        `json:"answers_per_second"`
	Goodput   float64        `json:"goodput_per_second"` // answers that meet the goals
	GoodShare float64        `json:"good_share"`         // of all requests
	Faults    map[string]int `json:"faults"`
	Failed    int            `json:"failed"`
}

// Percentiles of a time.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

func percentiles(ms []float64) Percentiles {
	return Percentiles{measure.Quantile(ms, 0.5), measure.Quantile(ms, 0.9), measure.Quantile(ms, 0.99)}
}

// Serve loads a server and measures it as a user sees it. One request before all others is
// not counted: it has the server load its model. That request's fault is an error; later
// ones are part of the report.
func Serve(ctx context.Context, c *Client, o ServeOptions) (*ServeReport, error) {
	questions := make([]Question, o.Requests)
	for i := range questions {
		texts := Prompts(o.Classes[i%len(o.Classes)])
		questions[i] = Question{
			Prompt: texts[i/len(o.Classes)%len(texts)], MaxTokens: o.MaxTokens, Temperature: o.Temperature, Seed: uint64(i + 1),
		}
	}
	s := &server{c: c, o: &o, questions: questions}
	if o.Progress != nil {
		o.Progress("warming up")
	}
	if r := s.ask(ctx, questions[0]); r.Fault != "" {
		return nil, fmt.Errorf("bench: %s: %s", c.URL, r.Fault)
	}
	report := &ServeReport{
		URL: c.URL, Model: c.Model, MaxTokens: o.MaxTokens, TTFTGoal: milliseconds(o.TTFTGoal), TPOTGoal: milliseconds(o.TPOTGoal),
	}
	n := len(o.Concurrency)
	loads := n + len(o.Rates)
	replies, took := make([][]Reply, loads), make([]time.Duration, loads)
	for repeat := range o.Repeats {
		for i := range loads {
			if o.Progress != nil {
				o.Progress(fmt.Sprintf("load %d of %d, repetition %d of %d", i+1, loads, repeat+1, o.Repeats))
			}
			var r []Reply
			var d time.Duration
			if i < n {
				r, d = s.closed(ctx, o.Concurrency[i])
			} else {
				r, d = s.open(ctx, arrivals(o.Requests, o.Rates[i-n], uint64(repeat)))
			}
			replies[i], took[i] = append(replies[i], r...), took[i]+d
		}
	}
	for i := range loads {
		l := newLoad(replies[i], took[i], o.TTFTGoal, o.TPOTGoal)
		if i < n {
			l.Concurrency = o.Concurrency[i]
		} else {
			l.Rate = o.Rates[i-n]
		}
		report.Loads = append(report.Loads, l)
	}
	return report, ctx.Err()
}

// server is one under load.
type server struct {
	c         *Client
	o         *ServeOptions
	questions []Question
}

func (s *server) ask(ctx context.Context, q Question) Reply {
	if s.o.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.o.Limit)
		defer cancel()
	}
	return s.c.Ask(ctx, q)
}

// closed keeps n requests under way until all have been answered.
func (s *server) closed(ctx context.Context, n int) ([]Reply, time.Duration) {
	replies := make([]Reply, len(s.questions))
	next := make(chan int, len(s.questions))
	for i := range s.questions {
		next <- i
	}
	close(next)
	start := time.Now()
	var users sync.WaitGroup
	for range n {
		users.Go(func() {
			for i := range next {
				replies[i] = s.ask(ctx, s.questions[i])
			}
		})
	}
	users.Wait()
	return replies, time.Since(start)
}

// open sends every request at its moment, and waits for all answers.
func (s *server) open(ctx context.Context, at []time.Duration) ([]Reply, time.Duration) {
	replies := make([]Reply, len(s.questions))
	start := time.Now()
	var users sync.WaitGroup
	for i, q := range s.questions {
		users.Go(func() {
			select {
			case <-time.After(time.Until(start.Add(at[i]))):
				replies[i] = s.ask(ctx, q)
			case <-ctx.Done():
				replies[i].Fault = ctx.Err().Error()
			}
		})
	}
	users.Wait()
	return replies, time.Since(start)
}

// arrivals are the moments of n requests of a Poisson process, the same for a seed.
func arrivals(n int, rate float64, seed uint64) []time.Duration {
	rng := rand.New(rand.NewPCG(seed, 7))
	at, list := 0.0, make([]time.Duration, n)
	for i := range list {
		list[i] = time.Duration(at * float64(time.Second))
		at += rng.ExpFloat64() / rate
	}
	return list
}

// newLoad works out what replies say.
func newLoad(replies []Reply, took, ttftGoal, tpotGoal time.Duration) Load {
	l := Load{Requests: len(replies), Seconds: took.Seconds(), Faults: map[string]int{}}
	var first, perToken, gaps, whole []float64
	good := 0
	for i := range replies {
		r := &replies[i]
		if r.Fault != "" {
			l.Faults[r.Fault]++
			l.Failed++
			continue
		}
		l.Tokens += r.Tokens
		first, whole = append(first, milliseconds(r.First)), append(whole, milliseconds(r.Last))
		if r.Tokens > 1 {
			perToken = append(perToken, milliseconds(r.perToken()))
		}
		for _, g := range r.Gaps {
			gaps = append(gaps, milliseconds(g))
		}
		if (ttftGoal == 0 || r.First <= ttftGoal) && (tpotGoal == 0 || r.perToken() <= tpotGoal) {
			good++
		}
	}
	l.TTFT, l.TPOT, l.ITL, l.Latency = percentiles(first), percentiles(perToken), percentiles(gaps), percentiles(whole)
	l.TokensSec = measure.Ratio(float64(l.Tokens), l.Seconds)
	l.Answers = measure.Ratio(float64(l.Requests-l.Failed), l.Seconds)
	l.Goodput = measure.Ratio(float64(good), l.Seconds)
	l.GoodShare = measure.Ratio(float64(good), float64(l.Requests))
	return l
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// Failed reports how many requests were not answered.
func (r *ServeReport) Failed() int {
	n := 0
	for i := range r.Loads {
		n += r.Loads[i].Failed
	}
	return n
}

// faults are all faults with how often they came, the most frequent first.
func (r *ServeReport) faults() []string {
	count := map[string]int{}
	for i := range r.Loads {
		for fault, n := range r.Loads[i].Faults {
			count[fault] += n
		}
	}
	list := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), strings.Compare(a, b))
	})
	for i, fault := range list {
		list[i] = fmt.Sprintf("%d × %s", count[fault], fault)
	}
	return list
}
