package sampling

import (
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/sample"
)

const benchVocab = 248_320

// benchRows are a row like a confident model's, a few dozen logits well above
// normal noise, and one of noise alone.
var benchRows = []struct {
	name string
	row  []float32
}{
	{"peaked", noiseRow(benchVocab, 40)},
	{"flat", noiseRow(benchVocab, 0)},
}

// noiseRow is normal noise of deviation 2.5 with the given number of peaks of up to 25.
func noiseRow(n, peaks int) []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	row := make([]float32, n)
	for i := range row {
		row[i] = float32(2.5 * r.NormFloat64())
	}
	for i := range peaks {
		row[r.IntN(n)] = 25 - 10*float32(i)/float32(peaks)
	}
	return row
}

func BenchmarkSample(b *testing.B) {
	context := make([]int32, 2048)
	for i := range context {
		context[i] = int32(uint64(i*i*7919) % benchVocab)
	}
	chains := []struct {
		name    string
		options sample.Options
		prompt  []int32
	}{
		{"greedy", sample.Options{}, nil},
		{"topk+topp", sample.Options{Temperature: 0.8, TopK: 20, TopP: 0.95}, nil},
		{"topk=1000+topp", sample.Options{Temperature: 0.8, TopK: 1000, TopP: 0.95}, nil},
		{"topp", sample.Options{Temperature: 0.8, TopP: 0.95}, nil},
		{"minp", sample.Options{Temperature: 0.8, MinP: 0.05}, nil},
		{"temperature", sample.Options{Temperature: 0.8}, nil},
		{"xtc", sample.Options{Temperature: 0.8, TopK: 20, XTCProbability: 1, XTCThreshold: 0.1}, nil},
		{"penalties", sample.Options{
			Temperature: 0.8, TopK: 20, TopP: 0.95,
			RepetitionPenalty: 1.1, PresencePenalty: 0.5, FrequencyPenalty: 0.1,
		}, context},
	}
	for _, c := range chains {
		for _, r := range benchRows {
			b.Run("chain="+c.name+"/row="+r.name, func(b *testing.B) {
				s, err := New(c.options, c.prompt)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(4 * benchVocab)
				b.ReportAllocs()
				for b.Loop() {
					s.Accept(s.Draw(s.Dist(r.row, nil)))
				}
			})
		}
	}
}

func BenchmarkProbUntruncated(b *testing.B) {
	for _, r := range benchRows {
		b.Run("row="+r.name, func(b *testing.B) {
			s, err := New(sample.Options{Temperature: 0.8}, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(4 * benchVocab)
			for b.Loop() {
				s.Dist(r.row, nil).Prob(7)
				s.Accept(7)
			}
		})
	}
}

func BenchmarkMinus(b *testing.B) {
	for _, c := range []struct {
		name    string
		options sample.Options
	}{
		{"topk+topp", sample.Options{Temperature: 0.8, TopK: 20, TopP: 0.95}},
		{"temperature", sample.Options{Temperature: 0.8}},
	} {
		b.Run("chain="+c.name, func(b *testing.B) {
			s, err := New(c.options, nil)
			if err != nil {
				b.Fatal(err)
			}
			p, q := s.Dist(benchRows[0].row, nil), s.Dist(benchRows[1].row, nil)
			p.Prob(0)
			q.Prob(0)
			b.ReportAllocs()
			for b.Loop() {
				s.Draw(p.Minus(q))
				s.live = 2 // give the difference back, keep its operands
			}
		})
	}
}

func BenchmarkLogProbs(b *testing.B) {
	b.SetBytes(4 * benchVocab)
	for b.Loop() {
		LogProbs(benchRows[0].row, 7, 20)
	}
}
