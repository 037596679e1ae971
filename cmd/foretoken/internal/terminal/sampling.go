package terminal

import (
	"fmt"
	"math"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/models"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/sample"
)

// samplingFlags say how to choose tokens.
type samplingFlags struct {
	temp, topP, minP    flags.Setting[float64]
	topK                flags.Setting[int]
	xtcP, xtcThreshold  flags.Setting[float64]
	repetition          flags.Setting[float64]
	repetitionContext   flags.Setting[int]
	presence, frequency flags.Setting[float64]
	bias                flags.Biases
	seed                flags.Setting[uint64]
}

func newSamplingFlags() *samplingFlags {
	number := func(r sampling.Range) flags.Setting[float64] { return flags.Number(r.Low, r.High) }
	return &samplingFlags{
		temp: number(sampling.Temperature), topP: number(sampling.TopP), minP: number(sampling.MinP), topK: flags.Whole(0, sampling.MaxCount),
		xtcP: number(sampling.XTCProbability), xtcThreshold: number(sampling.XTCThreshold),
		repetition: number(sampling.RepetitionPenalty), repetitionContext: flags.Whole(0, sampling.MaxCount),
		presence: number(sampling.Penalty), frequency: number(sampling.Penalty),
		bias: flags.Biases{}, seed: flags.Seed(),
	}
}

func (f *samplingFlags) group() flags.Group {
	g := flags.NewGroup("Sampling (defaults: the checkpoint's generation_config.json, else the values in parentheses)")
	fs := g.Flags()
	fs.SortFlags = false
	fs.Var(&f.temp, "temp", fmt.Sprintf("temperature; 0: greedy (default %v)", models.DefaultTemperature))
	fs.Var(&f.temp, "temperature", "the same as --temp")
	fs.Var(&f.topP, "top-p", fmt.Sprintf("keep the most likely tokens up to this total probability; 1: all (default %v)", models.DefaultTopP))
	fs.Var(&f.topK, "top-k", "keep the N most likely tokens; 0: all (default 0)")
	fs.Var(&f.minP, "min-p", "drop tokens with less than this fraction of the highest probability; 0: none (default 0)")
	fs.Var(&f.xtcP, "xtc-probability", "probability of excluding the top choices (default 0)")
	fs.Var(&f.xtcThreshold, "xtc-threshold", fmt.Sprintf("minimum probability of a top choice (default %v)", models.DefaultXTCThreshold))
	fs.Var(&f.repetition, "repetition-penalty", "divide the logits of earlier tokens by this; 1: off (default 1)")
	fs.Var(&f.repetitionContext, "repetition-context-size", "window of the repetition penalty in tokens; 0: all (default 0)")
	fs.Var(&f.presence, "presence-penalty", "subtract this from the logits of generated tokens (default 0)")
	fs.Var(&f.frequency, "frequency-penalty", "subtract this from a logit for each occurrence of its token (default 0)")
	fs.Var(f.bias, "logit-bias", "add a number to the logit of a token; may be repeated")
	fs.Var(&f.seed, "seed", "random seed; the same seed gives the same text (default: random, and reported)")
	flags.Must(fs.MarkHidden("temperature"))
	return g
}

// options are the sampling options: those given, else the checkpoint's recommendations
// o.
func (f *samplingFlags) options(o sample.Options) (sample.Options, error) {
	r := recommended{}
	choose(&r, &f.temp, "temp", "temperature", &o.Temperature)
	choose(&r, &f.topP, "top-p", "top_p", &o.TopP)
	choose(&r, &f.topK, "top-k", "top_k", &o.TopK)
	choose(&r, &f.minP, "min-p", "min_p", &o.MinP)
	choose(&r, &f.repetition, "repetition-penalty", "repetition_penalty", &o.RepetitionPenalty)
	choose(&r, &f.presence, "presence-penalty", "presence_penalty", &o.PresencePenalty)
	choose(&r, &f.frequency, "frequency-penalty", "frequency_penalty", &o.FrequencyPenalty)
	sampling.ClientTopP(&o)
	o.RepetitionWindow = f.repetitionContext.Or(0)
	o.XTCProbability, o.XTCThreshold = f.xtcP.Or(0), f.xtcThreshold.Or(models.DefaultXTCThreshold)
	o.LogitBias, o.Seed = f.bias, f.seed.Or(o.Seed)
	if o.XTCProbability > 0 && o.XTCThreshold == 0 {
		return o, flags.Usagef("--xtc-threshold 0: want a number above 0, at most 0.5, when --xtc-probability is set")
	}
	return o, r.err
}

// recommended keeps the first thing wrong with a checkpoint's recommendations.
type recommended struct{ err error }

// choose replaces a recommended value by the flag's value, if it was given; otherwise it is
// checked against the limits of the flag.
func choose[T any](r *recommended, f *flags.Setting[T], flag, field string, value *T) {
	if f.Given {
		*value = f.Value
		return
	}
	if err := f.Check(*value); err != nil && r.err == nil {
		r.err = fmt.Errorf("generation_config.json: %s is %v: %w; set it with --%s", field, *value, err, flag)
	}
}

// limitFlags say when an answer ends.
type limitFlags struct {
	maxTokens flags.Setting[int]
	otherwise int // tokens, if maxTokens was not given
	stop      flags.Texts
	ignoreEOS bool
}

// newLimitFlags are the flags, with tokens as the default of --max-tokens.
func newLimitFlags(tokens int) *limitFlags {
	return &limitFlags{maxTokens: flags.Whole(0, math.MaxInt32), otherwise: tokens}
}

func (f *limitFlags) group() flags.Group {
	g := flags.NewGroup("Limits")
	fs := g.Flags()
	fs.SortFlags = false
	fs.Var(&f.maxTokens, "max-tokens", fmt.Sprintf("maximum tokens to generate; 0: until the context is full (default %d)", f.otherwise))
	fs.Var(&f.stop, "stop", "stop text: ends the answer and is not part of it; may be repeated")
	fs.BoolVar(&f.ignoreEOS, "ignore-eos", false, "continue after an end token")
	return g
}
