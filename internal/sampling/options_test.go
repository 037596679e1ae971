package sampling

import (
	"math"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/sample"
)

func TestNewValidates(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	cases := []struct {
		name    string
		options sample.Options
		want    []string // parts of the error; none: no error
	}{
		{"zero", sample.Options{}, nil},
		{"usual", sample.Options{Temperature: 0.7, TopK: 20, TopP: 0.8, MinP: 0.05, RepetitionPenalty: 1.05, Vocab: 248320}, nil},
		{"limits", sample.Options{Temperature: 100, TopK: math.MaxInt32, TopP: 1, MinP: 1, XTCProbability: 1, XTCThreshold: 0.5, Vocab: maxVocab}, nil},
		{"tiny", sample.Options{Temperature: 5e-324, TopP: 5e-324, MinP: 5e-324, XTCProbability: 5e-324, XTCThreshold: 5e-324, RepetitionPenalty: 0.01}, nil},
		{"bias", sample.Options{LogitBias: map[int32]float32{0: -100, 9: 100}, Vocab: 10}, nil},
		{"temperature below", sample.Options{Temperature: -0.1}, []string{"Temperature", "-0.1", "0 to 100"}},
		{"temperature above", sample.Options{Temperature: 100.1}, []string{"Temperature", "100.1", "0 to 100"}},
		{"temperature NaN", sample.Options{Temperature: nan}, []string{"Temperature", "NaN"}},
		{"temperature infinite", sample.Options{Temperature: inf}, []string{"Temperature", "+Inf"}},
		{"top-k below", sample.Options{TopK: -1}, []string{"TopK", "-1", "0 to 2147483647"}},
		{"top-p above", sample.Options{TopP: 1.01}, []string{"TopP", "1.01", "0 to 1"}},
		{"top-p NaN", sample.Options{TopP: nan}, []string{"TopP", "NaN", "0 to 1"}},
		{"min-p below", sample.Options{MinP: -1}, []string{"MinP", "0 to 1"}},
		{"xtc probability", sample.Options{XTCProbability: 2, XTCThreshold: 0.1}, []string{"XTCProbability", "0 to 1"}},
		{"xtc threshold", sample.Options{XTCProbability: 1, XTCThreshold: 0.6}, []string{"XTCThreshold", "0 to 0.5"}},
		{"xtc threshold missing", sample.Options{XTCProbability: 1}, []string{"XTCThreshold", "0.5"}},
		{"xtc exempt", sample.Options{XTCExempt: []int32{3, -1}}, []string{"XTCExempt", "-1"}},
		{"repetition", sample.Options{RepetitionPenalty: -1}, []string{"RepetitionPenalty", "0.01 to 100"}},
		{"repetition infinite", sample.Options{RepetitionPenalty: inf}, []string{"RepetitionPenalty"}},
		{"window", sample.Options{RepetitionWindow: -5}, []string{"RepetitionWindow", "-5"}},
		{"presence", sample.Options{PresencePenalty: inf}, []string{"PresencePenalty", "-100 to 100"}},
		{"frequency", sample.Options{FrequencyPenalty: nan}, []string{"FrequencyPenalty", "NaN"}},
		{"bias NaN", sample.Options{LogitBias: map[int32]float32{4: float32(nan)}}, []string{"LogitBias", "id 4", "finite"}},
		{"bias infinite", sample.Options{LogitBias: map[int32]float32{4: float32(-inf)}}, []string{"LogitBias", "id 4"}},
		{"bias id", sample.Options{LogitBias: map[int32]float32{10: 1}, Vocab: 10}, []string{"LogitBias", "id 10", "0 to 9"}},
		{"vocab", sample.Options{Vocab: maxVocab + 1}, []string{"Vocab", "2097153", "0 to 2097152"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, err := New(c.options, []int32{1, 2})
			if len(c.want) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || s != nil {
				t.Fatalf("New accepts %+v", c.options)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}
