package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/bench"
	"github.com/foretoken/foretoken/internal/spec"
)

// decodeBench is a run of the command bench decode.
type decodeBench struct {
	model *modelFlags
	out   *benchOutput

	classes, rules, depths []string
	temps                  []float64
	batches                []int
	prompts, repeats       setting[int]
	maxTokens              setting[int]
	full                   bool
}

// What is measured if no flag says, and with --full.
const (
	quickPrompts, fullPrompts = 2, 8
	quickTokens, fullTokens   = 96, 160
	decodeRepeats             = 5
)

func newBenchDecodeCommand() *cobra.Command {
	f := &decodeBench{
		model: newModelFlags(), out: &benchOutput{},
		classes: bench.Classes(), rules: []string{"exact"}, depths: []string{"1", "2", "3", "auto"}, temps: []float64{0, 0.6}, batches: []int{1},
		prompts: whole(1, 48), repeats: whole(1, 1000), maxTokens: whole(8, 1<<20),
	}
	cmd := &cobra.Command{
		Use:   "decode",
		Short: "Measure speculative decoding against plain decoding",
		Long: `Decode generates answers to several classes of prompts, with and without draft tokens, alternating
in one process. It reports tokens per second, the ratio to plain decoding in the same repetition,
acceptance, the cost of passes and draft tokens, and the speedup predicted by the cost model. Each
ratio has the interval in which another run should fall. If the machine is too noisy for that, there
is a warning.

Every answer is compared with that of plain decoding. Under the rule exact, tokens and logit bits
must be equal.

The default takes about a minute with the embedded model. --full measures every temperature, rule and
batch size, which takes more than an hour.

Exit status: 0 success, 1 error or an answer that is not exact, 2 invalid command line, 130
interrupted by Ctrl-C.`,
		Example: `  foretoken bench decode
  foretoken bench decode --classes story,code --temps 0,1 --depths 1,2,auto --html report.html
  foretoken bench decode --model ~/models/Qwen3.5-4B --quantize 4 --batches 1,4 --json
  foretoken bench decode --full --html report.html --plots plots`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	addGroups(cmd, f.what(), f.model.group(), f.drafts(), f.out.group())
	f.complete(cmd)
	return cmd
}

func (f *decodeBench) what() flagGroup {
	g := newFlagGroup("Measurements")
	fs := g.flags.Flags()
	fs.SortFlags = false
	fs.BoolVar(&f.full, "full", false, fmt.Sprintf("measure temperatures 0, 0.2, 0.6 and 1, both rules, batches of 1, 2, 4 and 8, with %d prompts per class and %d tokens per answer", fullPrompts, fullTokens))
	fs.StringSliceVar(&f.classes, "classes", f.classes, "comma-separated `LIST` of prompt classes")
	fs.Float64SliceVar(&f.temps, "temps", f.temps, "`LIST` of temperatures")
	fs.Lookup("temps").DefValue = "[0,0.6]" // as it is typed
	fs.StringSliceVar(&f.depths, "depths", f.depths, fmt.Sprintf("`LIST` of draft tokens per round: 1 to %d, or auto (fastest)", spec.MaxDepth))
	fs.StringSliceVar(&f.rules, "rules", f.rules, "`LIST` of acceptance rules: exact, ratio")
	fs.IntSliceVar(&f.batches, "batches", f.batches, "`LIST` of batch sizes")
	fs.Var(&f.prompts, "prompts", fmt.Sprintf("prompts per class (default %d, with --full %d)", quickPrompts, fullPrompts))
	fs.Var(&f.maxTokens, "max-tokens", fmt.Sprintf("tokens per answer (default %d, with --full %d)", quickTokens, fullTokens))
	fs.Var(&f.repeats, "repeats", fmt.Sprintf("number of timed repetitions; more repetitions narrow the intervals (default %d)", decodeRepeats))
	return g
}

// drafts are the flags of speculative decoding that do not vary within a run.
func (f *decodeBench) drafts() flagGroup {
	g := newFlagGroup("Speculative decoding")
	d, fs := f.model.draft, g.flags.Flags()
	fs.SortFlags = false
	fs.Var(&d.drafter, "draft", "drafter: the multi-token-prediction head, n-grams of the text, or both (default mtp)")
	fs.Var(&d.vocab, "draft-vocab", "draft vocabulary: the N most frequent tokens and the tokens of the text (default auto: fastest)")
	fs.BoolVar(&d.noSelfTest, "no-self-test", false, "do not measure the head on load")
	return g
}

func (f *decodeBench) complete(cmd *cobra.Command) {
	completeDevice(cmd)
	completeKV(cmd)
	for name, words := range map[string][]cobra.Completion{
		"classes": bench.Classes(), "rules": {"exact", "ratio"}, "depths": {"auto"}, "draft": {"mtp", "ngram", "auto"},
		"draft-vocab": {"auto", "all"}, "compute": {"int8", "float32"}, "quantize": {"4", "5", "6", "8"},
	} {
		mustFlag(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
	}
	mustFlag(cmd.RegisterFlagCompletionFunc("model", func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeModelName(typed)
	}))
	f.out.complete(cmd)
}

func (f *decodeBench) run(cmd *cobra.Command) (err error) {
	o, err := f.options(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	if err := f.out.prepare(); err != nil {
		return err
	}
	c := newConsole(cmd)
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	if !f.model.draft.drafter.given {
		f.model.draft.mtp.value = "on" // without a head there is nothing to compare
	}
	recorder := &bench.Recorder{}
	m := f.model.options()
	m.Vision.Off = true
	m.OnRound = recorder.ObserveModel
	m.MaxRound = time.Hour // prompts are prefilled at once: what counts is rounds in which all sequences decode
	if m.MaxBatch = slices.Max(f.batches); m.MaxBatch > 1 {
		m.KVMemory = -1 // the KV cache of the longest sequence need not be enough for several
	}
	s, err := openBench(ctx, c, f.model, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if o.Prompts, err = f.encoded(s); err != nil {
		return err
	}
	o.Sampling = s.Sampling()
	o.Sampling.Vocab = s.Vocab()
	o.Progress = c.step
	r, err := bench.Decode(ctx, recorder.OnModel(s.Model), *o)
	if errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	r.Model, r.Device, r.Load = s.Name(), s.Device(), machineLoad()
	return f.show(c, r)
}

// show prints the report. An answer that is not what it must be is an error.
func (f *decodeBench) show(c *console, r *bench.DecodeReport) error {
	if err := f.out.write(c, r); err != nil {
		return err
	}
	if !r.Exact() {
		return errors.New("an answer differs from plain decoding: this is a bug of foretoken, or the machine's memory is faulty")
	}
	return nil
}

// options are what the flags ask for. changed reports whether a flag was given.
func (f *decodeBench) options(changed func(string) bool) (*bench.DecodeOptions, error) {
	o := &bench.DecodeOptions{Repeats: f.repeats.or(decodeRepeats), MaxTokens: f.maxTokens.or(quickTokens)}
	if f.full {
		o.MaxTokens = f.maxTokens.or(fullTokens)
		unless(changed("temps"), &f.temps, 0, 0.2, 0.6, 1)
		unless(changed("rules"), &f.rules, "exact", "ratio")
		unless(changed("batches"), &f.batches, 1, 2, 4, 8)
	}
	for _, class := range f.classes {
		if !slices.Contains(bench.Classes(), class) {
			return nil, usagef("--classes %s: want some of %s", class, strings.Join(bench.Classes(), ", "))
		}
	}
	for _, t := range f.temps {
		if !(t >= 0 && t <= 100) {
			return nil, usagef("--temps %v: want numbers from 0 to 100", t)
		}
	}
	for _, b := range f.batches {
		if b < 1 || b > 64 {
			return nil, usagef("--batches %d: want numbers from 1 to 64", b)
		}
	}
	for _, name := range f.rules {
		rule, err := spec.ParseRule(name)
		if err != nil {
			return nil, usagef("--rules %s: want exact, ratio or both", name)
		}
		o.Rules = append(o.Rules, rule)
	}
	for _, name := range f.depths {
		depth, err := strconv.Atoi(name)
		if name == "auto" {
			depth, err = bench.AutoDepth, nil
		}
		if err != nil || depth == 0 || depth > spec.MaxDepth || depth < bench.AutoDepth {
			return nil, usagef("--depths %s: want auto, or numbers from 1 to %d; plain decoding is always measured", name, spec.MaxDepth)
		}
		o.Depths = append(o.Depths, depth)
	}
	for name, n := range map[string]int{"classes": len(f.classes), "temps": len(f.temps), "batches": len(f.batches), "rules": len(f.rules), "depths": len(f.depths)} {
		if n == 0 {
			return nil, usagef("--%s: the list is empty", name)
		}
	}
	o.Classes, o.Temperatures, o.Batches = f.classes, f.temps, f.batches
	return o, nil
}

// unless sets a list, unless it was given.
func unless[T any](given bool, list *[]T, values ...T) {
	if !given {
		*list = values
	}
}

// encoded are the token ids of the prompts. A checkpoint without a chat template gets
// them as plain text.
func (f *decodeBench) encoded(s *session) (map[string][][]int32, error) {
	n := f.prompts.or(quickPrompts)
	if f.full {
		n = f.prompts.or(fullPrompts)
	}
	all := map[string][][]int32{}
	for _, class := range f.classes {
		texts := bench.Prompts(class)
		for _, text := range texts[:min(len(texts), max(n, slices.Max(f.batches)))] {
			p := s.TextPrompt(text)
			if !bench.Raw(class) {
				asked, err := s.ChatPrompt(foretoken.Conversation{Messages: []chat.Message{{Role: "user", Content: chat.Text(text)}}})
				if err == nil {
					p = asked
				} else if !errors.Is(err, foretoken.ErrNoTemplate) {
					return nil, err
				}
			}
			if err := s.checkPrompt(p); err != nil {
				return nil, err
			}
			all[class] = append(all[class], p.IDs)
		}
	}
	return all, nil
}

// machineLoad is what else the machine was doing, where the system tells.
func machineLoad() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(data))
	if len(fields) == 0 {
		return ""
	}
	return fmt.Sprintf("Load of the machine at the end, these threads included: %s on %d processors.", fields[0], processors)
}
