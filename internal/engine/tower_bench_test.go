package engine

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/picture"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/state"
)

var towerShape = flag.String("tower-shape", "0.8b", "generated model that BenchmarkImage looks with")

// BenchmarkImage measures a generated model with an image: the time to the first token, alone;
// and the gaps between the tokens of a text beside it, as ratios to those of the text alone and
// beside a prompt of as many tokens.
func BenchmarkImage(b *testing.B) {
	device := backendtest.Open(b, backend.Options{})
	defer slot()()
	m, err := model.Generate(*towerShape, weights.BitsForm(4), device, model.Options{TowerBits: 16, Log: quiet})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // nothing to lose
	tower, err := m.(model.Multimodal).Tower()
	if err != nil {
		b.Fatal(err)
	}
	var rounds []time.Time // of rounds that generate
	e, err := New(m, state.NewPool(device, 4<<30), Options{Tower: tower, Log: quiet, Observe: func(r Round) {
		if r.Tokens > 0 {
			rounds = append(rounds, time.Now())
		}
	}})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	seed := byte(0)
	for _, size := range [][2]int{{640, 480}, {1920, 1080}} {
		b.Run(fmt.Sprintf("shape=%s/size=%dx%d", *towerShape, size[0], size[1]), func(b *testing.B) {
			var first, seen []float64
			gaps := map[string][]float64{}
			for b.Loop() {
				seed++
				shown := viewing(b, size[0], size[1], seed)
				start, before := time.Now(), e.Stats().Tower
				if _, _, err := collect(e, shown); err != nil {
					b.Fatal(err)
				}
				first = append(first, time.Since(start).Seconds())
				seen = append(seen, (e.Stats().Tower.Took - before.Took).Seconds())
				read := shown
				read.Inputs, read.Prompt = nil, prompt(len(shown.Prompt), int(seed))
				seed++
				for what, beside := range map[string]*Request{"alone": nil, "picture": ptr(viewing(b, size[0], size[1], seed)), "prompt": &read} {
					list := listen(b, e, &rounds, beside)
					gaps[what] = append(gaps[what], middle(list))
					slices.Sort(list)
					gaps[what+" p99"] = append(gaps[what+" p99"], list[len(list)*99/100])
				}
			}
			b.ReportMetric(middle(first), "s/first-token")
			b.ReportMetric(middle(seen), "s/tower")
			for _, what := range []string{"picture", "prompt"} {
				b.ReportMetric(middle(gaps[what])/middle(gaps["alone"]), "gap-beside-"+what)
				b.ReportMetric(middle(gaps[what+" p99"])/middle(gaps["alone"]), "p99-beside-"+what)
			}
		})
	}
}

func ptr(r Request) *Request { return &r }

// viewing is a request for a token after an image of noise.
func viewing(b *testing.B, width, height int, seed byte) Request {
	b.Helper()
	img := &picture.Image{Width: width, Height: height, Pix: make([]byte, 3*width*height)}
	for i := range img.Pix {
		img.Pix[i] = byte(i*i/7)*3 + seed
	}
	c := picture.Images()
	c.MaxPixels = 1 << 20
	p, err := c.Prepare(img, 1)
	if err != nil {
		b.Fatal(err)
	}
	n := p.Tokens()
	r := Request{Prompt: slices.Concat(prompt(5, int(seed)), slices.Repeat([]int32{model.NoToken}, n), prompt(15, 3)), MaxTokens: 1, IgnoreEnd: true}
	in := Input{Input: prefix.Input{At: 5, N: n, Hash: p.Hash}, Image: p}
	for i := range int32(n) {
		columns := int32(p.Grid.Width / 2)
		in.Positions = append(in.Positions, [3]int32{0, i / columns, i % columns})
	}
	r.Inputs = []Input{in}
	return r
}

// listen is the gaps in seconds between the tokens of a text: 40 of them alone, or those until a
// request beside it has ended.
func listen(b *testing.B, e *Engine, rounds *[]time.Time, beside *Request) (gaps []float64) {
	b.Helper()
	r := Request{Prompt: prompt(20, 9), MaxTokens: 42, IgnoreEnd: true}
	if beside != nil {
		r.MaxTokens = 4000
	}
	*rounds = nil
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	s, err := e.Generate(ctx, r)
	if err != nil {
		b.Fatal(err)
	}
	if beside != nil {
		for _, err := range s.Tokens() {
			if err != nil {
				b.Fatal(err)
			}
			break // it generates
		}
		if _, _, err := collect(e, *beside); err != nil {
			b.Fatal(err)
		}
		cancel()
	}
	s.Result()
	list := slices.Clone(*rounds)
	for i := 2; i < len(list); i++ {
		gaps = append(gaps, list[i].Sub(list[i-1]).Seconds())
	}
	return gaps
}
