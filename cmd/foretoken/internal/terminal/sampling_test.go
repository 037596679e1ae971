package terminal

import (
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/models"
)

func TestSamplingDefaultsComeFromTheCheckpoint(t *testing.T) {
	type defaults struct {
		temp, topP float64
		topK       int
		repetition float64
	}
	cases := map[string]struct {
		file string // generation_config.json
		args []string
		want defaults
	}{
		"nothing":            {"{}", nil, defaults{0.8, 0.95, 0, 1}},
		"recommended":        {`{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.9}`, nil, defaults{0.6, 0.9, 20, 1}},
		"greedy":             {`{"do_sample": false, "temperature": 0.6}`, nil, defaults{0, 1, 0, 1}},
		"format's default":   {`{"do_sample": true}`, nil, defaults{1, 1, 0, 1}},
		"temperature only":   {`{"temperature": 0.3, "repetition_penalty": 1.1}`, nil, defaults{0.3, 1, 0, 1.1}},
		"all tokens":         {`{"top_k": -1}`, nil, defaults{0.8, 1, 0, 1}},
		"flag over file":     {`{"temperature": 0.6, "top_k": 20}`, []string{"--temp", "0", "--top-k", "0"}, defaults{0, 1, 0, 1}},
		"no probability":     {`{"top_k": 20}`, []string{"--top-p", "0"}, defaults{0.8, 0, 1, 1}},
		"flag over bad file": {`{"temperature": -3}`, []string{"--temp", "0.5"}, defaults{0.5, 1, 0, 1}},
	}
	for name, c := range cases {
		var g checkpoint.Generation
		if err := checkpoint.DecodeJSON("generation_config.json", []byte(c.file), &g); err != nil {
			t.Fatal(err)
		}
		f := newSamplingFlags()
		if err := f.group().ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		o, err := f.options(models.Recommended(g))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := (defaults{o.Temperature, o.TopP, o.TopK, o.RepetitionPenalty}); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestSamplingRefusesBadRecommendations(t *testing.T) {
	for file, want := range map[string]string{
		`{"temperature": -1}`:          "generation_config.json: temperature is -1: want a number from 0 to 100; set it with --temp",
		`{"top_p": 7}`:                 "generation_config.json: top_p is 7: want a number from 0 to 1; set it with --top-p",
		`{"repetition_penalty": -0.5}`: "repetition_penalty is -0.5",
	} {
		var g checkpoint.Generation
		if err := checkpoint.DecodeJSON("generation_config.json", []byte(file), &g); err != nil {
			t.Fatal(err)
		}
		if _, err := newSamplingFlags().options(models.Recommended(g)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}
