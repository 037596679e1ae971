package main

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/backend/cpu"
	"github.com/foretoken/foretoken/checkpoint"
	"github.com/foretoken/foretoken/sample"
)

// What holds where neither a flag nor the checkpoint's generation_config.json says
// anything.
const (
	defaultTemperature = 0.8
	defaultTopP        = 0.95
	defaultXTC         = 0.1
	defaultContext     = 32768
)

// embeddedName is what the model inside the program is called.
const embeddedName = "tiny"

// modelFlags say which model to open, and how.
type modelFlags struct {
	model    string
	compute  setting[string]
	quantize setting[string]
	threads  setting[int]
	isa      setting[string]
	context  setting[int]
	verbose  bool
	draft    *draftFlags
}

func newModelFlags() *modelFlags {
	isas, _ := cpu.ISAs() // one that does not run here is explained when it is opened
	return &modelFlags{
		model:    embeddedName,
		compute:  choice("int8", "float32"),
		quantize: choice("4", "5", "6", "8"),
		threads:  whole(1, 1024),
		isa:      choice(isas...),
		context:  whole(2, math.MaxInt32),
		draft:    newDraftFlags(),
	}
}

func (f *modelFlags) group() flagGroup {
	g := newFlagGroup("Model")
	fs := g.flags.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.model, "model", f.model, "checkpoint `DIR`, or "+embeddedName+" for the model inside the program")
	fs.Var(&f.compute, "compute", "arithmetic for quantised weights (default int8)")
	fs.Var(&f.quantize, "quantize", "bits to quantise the weights to on loading (default: as they are in the files)")
	fs.Var(&f.threads, "threads", "processors to use (default: all)")
	fs.Var(&f.isa, "isa", "instruction set to compute with; all give the same bits (default: the fastest this machine has)")
	fs.Var(&f.context, "context", fmt.Sprintf("most tokens of prompt and answer together (default: what the model allows, at most %d)", defaultContext))
	fs.BoolVar(&f.verbose, "verbose", false, "report on loading, and on tokens and speed, on standard error")
	return g
}

// completeModel adds what a shell can complete.
func completeModel(cmd *cobra.Command) {
	isas, _ := cpu.ISAs()
	words := map[string][]cobra.Completion{"compute": {"int8", "float32"}, "quantize": {"4", "5", "6", "8"}, "isa": isas}
	for name, list := range words {
		mustFlag(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)))
	}
	mustFlag(cmd.MarkFlagDirname("model"))
	completeDrafting(cmd)
}

// mustFlag is for calls that go wrong only if a flag is not defined.
func mustFlag(err error) {
	if err != nil {
		panic("foretoken: " + err.Error())
	}
}

// samplingFlags say how to choose tokens.
type samplingFlags struct {
	temp, topP, minP    setting[float64]
	topK                setting[int]
	xtcP, xtcThreshold  setting[float64]
	repetition          setting[float64]
	repetitionContext   setting[int]
	presence, frequency setting[float64]
	bias                biases
	seed                setting[uint64]
}

func newSamplingFlags() *samplingFlags {
	inf := math.MaxFloat64
	return &samplingFlags{
		temp: number(0, inf), topP: number(0, 1), minP: number(0, 1), topK: whole(0, math.MaxInt32),
		xtcP: number(0, 1), xtcThreshold: number(0, 0.5),
		repetition: number(0, inf), repetitionContext: whole(0, math.MaxInt32),
		presence: number(-inf, inf), frequency: number(-inf, inf),
		bias: biases{}, seed: seedSetting(),
	}
}

func (f *samplingFlags) group() flagGroup {
	g := newFlagGroup("Sampling (defaults: the checkpoint's generation_config.json)")
	fs := g.flags.Flags()
	fs.SortFlags = false
	fs.Var(&f.temp, "temp", fmt.Sprintf("temperature; 0 always takes the most likely token (otherwise %v)", defaultTemperature))
	fs.Var(&f.temp, "temperature", "the same as --temp")
	fs.Var(&f.topP, "top-p", fmt.Sprintf("keep the likeliest tokens that reach this probability together; 1 keeps all (otherwise %v)", defaultTopP))
	fs.Var(&f.topK, "top-k", "keep the N likeliest tokens; 0 keeps all (otherwise 0)")
	fs.Var(&f.minP, "min-p", "drop tokens less likely than this times the likeliest; 0 keeps all (otherwise 0)")
	fs.Var(&f.xtcP, "xtc-probability", "how often to exclude the top choices (otherwise 0)")
	fs.Var(&f.xtcThreshold, "xtc-threshold", fmt.Sprintf("probability from which a token is a top choice (otherwise %v)", defaultXTC))
	fs.Var(&f.repetition, "repetition-penalty", "divide the logits of tokens that occurred before; 1 is none (otherwise 1)")
	fs.Var(&f.repetitionContext, "repetition-context-size", "how many of the last tokens count for it; 0 is all (otherwise 0)")
	fs.Var(&f.presence, "presence-penalty", "take this once from the logits of tokens generated before (otherwise 0)")
	fs.Var(&f.frequency, "frequency-penalty", "take this from a logit as often as its token was generated (otherwise 0)")
	fs.Var(f.bias, "logit-bias", "add a number to the logit of a token; may be repeated")
	fs.Var(&f.seed, "seed", "seed of all draws: the same seed gives the same text (otherwise: drawn, and reported)")
	mustFlag(fs.MarkHidden("temperature"))
	return g
}

// options are the sampling options: what was given, else what the checkpoint recommends,
// else our defaults. A seed is drawn if none was given.
func (f *samplingFlags) options(g checkpoint.Generation) (sample.Options, error) {
	temperature, topP := defaultTemperature, defaultTopP
	if g.DoSample != nil && *g.DoSample && g.Temperature == nil {
		temperature = 1 // the format's own default
	}
	if g.DoSample != nil || g.Temperature != nil || g.TopK != nil || g.TopP != nil {
		topP = 1 // the file does recommend something, and this is not part of it
	}
	if g.DoSample != nil && !*g.DoSample {
		greedy := 0.0
		g.Temperature = &greedy
	}
	if g.TopK != nil && *g.TopK < 0 {
		g.TopK = nil // some files write -1 for all
	}
	r := recommended{}
	o := sample.Options{
		Temperature:       pick(&r, &f.temp, "temp", "temperature", g.Temperature, temperature),
		TopP:              pick(&r, &f.topP, "top-p", "top_p", g.TopP, topP),
		TopK:              pick(&r, &f.topK, "top-k", "top_k", (*int)(g.TopK), 0),
		MinP:              pick(&r, &f.minP, "min-p", "min_p", g.MinP, 0),
		RepetitionPenalty: pick(&r, &f.repetition, "repetition-penalty", "repetition_penalty", g.RepetitionPenalty, 1),
		PresencePenalty:   pick(&r, &f.presence, "presence-penalty", "presence_penalty", g.PresencePenalty, 0),
		FrequencyPenalty:  pick(&r, &f.frequency, "frequency-penalty", "frequency_penalty", g.FrequencyPenalty, 0),
		RepetitionWindow:  f.repetitionContext.or(0),
		XTCProbability:    f.xtcP.or(0),
		XTCThreshold:      f.xtcThreshold.or(defaultXTC),
		LogitBias:         f.bias,
		Seed:              f.seed.value,
	}
	if o.XTCProbability > 0 && o.XTCThreshold == 0 {
		return o, usagef("--xtc-threshold 0: want a number above 0, at most 0.5, when --xtc-probability is set")
	}
	if !f.seed.given {
		o.Seed = drawSeed()
	}
	return o, r.err
}

// recommended keeps the first thing wrong with a checkpoint's recommendations.
type recommended struct{ err error }

// pick is the flag's value if it was given, else the checkpoint's if it has one, which is
// held to the flag's own limits.
func pick[T any](r *recommended, f *setting[T], flag, field string, file *T, otherwise T) T {
	switch {
	case f.given:
		return f.value
	case file == nil:
		return otherwise
	}
	if err := f.check(*file); err != nil && r.err == nil {
		r.err = fmt.Errorf("generation_config.json: %s is %v: %w; set it with --%s", field, *file, err, flag)
	}
	return *file
}

// drawSeed returns a random seed below 2^53, which every reader of JSON keeps exact.
func drawSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	return binary.LittleEndian.Uint64(b[:]) >> 11
}

// limitFlags say when an answer ends.
type limitFlags struct {
	maxTokens setting[int]
	otherwise int // tokens, if maxTokens was not given
	stop      texts
	ignoreEOS bool
}

// newLimitFlags are the flags with a default for the most tokens.
func newLimitFlags(tokens int) *limitFlags {
	return &limitFlags{maxTokens: whole(0, math.MaxInt32), otherwise: tokens}
}

func (f *limitFlags) group() flagGroup {
	g := newFlagGroup("Limits")
	fs := g.flags.Flags()
	fs.SortFlags = false
	fs.Var(&f.maxTokens, "max-tokens", fmt.Sprintf("most tokens to generate; 0: until the context is full (default %d)", f.otherwise))
	fs.Var(&f.stop, "stop", "text that ends the answer and is not part of it; may be repeated")
	fs.BoolVar(&f.ignoreEOS, "ignore-eos", false, "go on after an end token")
	return g
}
