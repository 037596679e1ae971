package benchmarks

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

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/bench"
	"github.com/foretoken/foretoken/internal/spec"
)

// decodeBench is a run of the command bench decode.
type decodeBench struct {
	model *load.Flags
	out   *benchOutput

	classes, rules, depths, temps []string

	batches, contexts []int
	prompts, repeats  flags.Setting[int]
	maxTokens         flags.Setting[int]
	full              bool
}

// recommendedTemp stands for the temperature that the checkpoint recommends.
const recommendedTemp = "recommended"

// Defaults, and values with --full.
const (
	quickPrompts, fullPrompts = 2, 8
	quickTokens, fullTokens   = 96, 160
	decodeRepeats             = 5
)

func newBenchDecodeCommand() *cobra.Command {
	f := &decodeBench{
		model: load.NewFlags(), out: &benchOutput{},
		classes: bench.Classes(), rules: []string{"exact"}, depths: []string{"1", "2", "3", "auto"}, temps: []string{"0", "0.6"}, batches: []int{1}, contexts: []int{0},
		prompts: flags.Whole(1, 48), repeats: flags.Whole(1, 1000), maxTokens: flags.Whole(8, 1<<20),
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

Filters such as top-k and top-p are those that the checkpoint recommends. With --contexts, earlier turns
of a conversation come before each prompt: prompts of the same class with the model's own answers.

The last table has the means over the classes. A warning names every mean below 0.99 times plain, and
every class whose interval is below it.

The default takes about a minute with the embedded model. --full measures every temperature, rule and
batch size, which takes more than an hour.

Exit status: 0 success, 1 error or an answer that is not exact, 2 invalid command line, 130
interrupted by Ctrl-C.`,
		Example: `  foretoken bench decode
  foretoken bench decode --classes story,code --temps 0,1 --depths 1,2,auto --html report.html
  foretoken bench decode --model ~/models/Qwen3.5-4B --quantize 4 --batches 1,4 --json
  foretoken bench decode --temps 0,0.6,1 --batches 1,2,4,8,16 --depths auto --repeats 10
  foretoken bench decode --temps recommended --contexts 1024,2048,3968 --depths auto
  foretoken bench decode --full --html report.html --plots plots`,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags.AddGroups(cmd, f.what(), f.model.Group(), f.drafts(), f.out.group())
	f.complete(cmd)
	return cmd
}

func (f *decodeBench) what() flags.Group {
	g := flags.NewGroup("Measurements")
	fs := g.Flags()
	fs.SortFlags = false
	fs.BoolVar(&f.full, "full", false, fmt.Sprintf("measure temperatures 0, 0.6 and 1, both rules, batches of 1, 2, 4, 8 and 16, with %d prompts per class and %d tokens per answer", fullPrompts, fullTokens))
	fs.StringSliceVar(&f.classes, "classes", f.classes, "comma-separated `LIST` of prompt classes")
	fs.StringSliceVar(&f.temps, "temps", f.temps, "`LIST` of temperatures, or recommended: that of the checkpoint")
	fs.StringSliceVar(&f.depths, "depths", f.depths, fmt.Sprintf("`LIST` of draft tokens per round: 1 to %d, or auto (fastest)", spec.MaxDepth))
	fs.StringSliceVar(&f.rules, "rules", f.rules, "`LIST` of acceptance rules: exact, ratio")
	fs.IntSliceVar(&f.batches, "batches", f.batches, "`LIST` of batch sizes")
	fs.IntSliceVar(&f.contexts, "contexts", f.contexts, "`LIST` of context lengths in tokens, which earlier turns fill; 0: no earlier turns")
	fs.Var(&f.prompts, "prompts", fmt.Sprintf("prompts per class (default %d, with --full %d)", quickPrompts, fullPrompts))
	fs.Var(&f.maxTokens, "max-tokens", fmt.Sprintf("tokens per answer (default %d, with --full %d)", quickTokens, fullTokens))
	fs.Var(&f.repeats, "repeats", fmt.Sprintf("number of timed repetitions; more repetitions narrow the intervals (default %d)", decodeRepeats))
	return g
}

// drafts are the flags of speculative decoding that do not vary within a run.
func (f *decodeBench) drafts() flags.Group {
	g := flags.NewGroup("Speculative decoding")
	d, fs := f.model.Draft, g.Flags()
	fs.SortFlags = false
	fs.Var(&d.Drafter, "draft", "drafter: the multi-token-prediction head (mtp), that of --drafter (block), n-grams of the text, or the fastest of all in each round (default auto)")
	d.AddDrafter(g, "")
	fs.Var(&d.Vocab, "draft-vocab", "draft vocabulary: the N most frequent tokens and the tokens of the text (default auto: fastest)")
	fs.BoolVar(&d.NoSelfTest, "no-self-test", false, "do not measure the head on load")
	return g
}

func (f *decodeBench) complete(cmd *cobra.Command) {
	load.CompleteDevice(cmd)
	load.CompleteNodes(cmd)
	load.CompleteKV(cmd)
	for name, words := range map[string][]cobra.Completion{
		"classes": bench.Classes(), "rules": {"exact", "ratio"}, "depths": {"auto"}, "temps": {"recommended"}, "draft": {"auto", "mtp", "block", "ngram"},
		"draft-vocab": {"auto", "all"}, "compute": {"int8", "float32"}, "quantize": {"4", "5", "6", "8"},
	} {
		flags.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
	}
	flags.Must(cmd.RegisterFlagCompletionFunc("model", func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return load.CompleteName(typed)
	}))
	load.CompleteDrafter(cmd)
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
	c := console.New(cmd)
	ctx, stop := console.Interruptible(cmd.Context())
	defer stop()
	if err := f.model.Draft.Validate(); err != nil {
		return err
	}
	if !f.model.Draft.Drafter.Given && f.model.Draft.File() == "" {
		f.model.Draft.MTP.Value = "on" // without a head there is nothing to compare
	}
	recorder := &bench.Recorder{}
	m := f.model.Options()
	m.Vision.Off = true
	m.OnRound = recorder.ObserveModel
	m.MaxRound = time.Hour // prompts are prefilled at once: only rounds in which all sequences decode count
	if m.MaxBatch = slices.Max(f.batches); m.MaxBatch > 1 {
		m.KVMemory = -1 // the KV cache of the longest sequence need not be enough for several
	}
	s, err := f.model.OpenWith(ctx, c, m, console.NewNotes(f.model.Verbose))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	o.Sampling, o.Progress = s.Sampling(), c.Step
	o.Sampling.Vocab = s.Vocab()
	for i, name := range f.temps {
		if name == recommendedTemp {
			o.Temperatures[i] = o.Sampling.Temperature
		}
	}
	if o.Prompts, err = f.encoded(ctx, s, o); err != nil {
		return err
	}
	r, err := bench.Decode(ctx, recorder.OnModel(s.Model), *o)
	if errors.Is(err, context.Canceled) {
		return console.ErrInterrupted
	}
	if err != nil {
		return err
	}
	r.Model, r.Device, r.Load = s.Name(), s.Device(), machineLoad()
	return f.show(c, r)
}

// show prints the report. A wrong answer is an error.
func (f *decodeBench) show(c *console.Console, r *bench.DecodeReport) error {
	if err := f.out.write(c, r); err != nil {
		return err
	}
	if !r.Exact() {
		return errors.New("an answer differs from plain decoding: this is a bug of foretoken, or the machine's memory is faulty")
	}
	return nil
}

// options are those of the flags. changed reports whether a flag was given.
func (f *decodeBench) options(changed func(string) bool) (*bench.DecodeOptions, error) {
	o := &bench.DecodeOptions{Repeats: f.repeats.Or(decodeRepeats), MaxTokens: f.maxTokens.Or(quickTokens)}
	if f.full {
		o.MaxTokens = f.maxTokens.Or(fullTokens)
		unless(changed("temps"), &f.temps, "0", "0.6", "1")
		unless(changed("rules"), &f.rules, "exact", "ratio")
		unless(changed("batches"), &f.batches, 1, 2, 4, 8, 16)
	}
	for _, class := range f.classes {
		if !slices.Contains(bench.Classes(), class) {
			return nil, flags.Usagef("--classes %s: want some of %s", class, strings.Join(bench.Classes(), ", "))
		}
	}
	for _, name := range f.temps {
		t, err := strconv.ParseFloat(name, 64)
		if name != recommendedTemp && (err != nil || !(t >= 0 && t <= 100)) {
			return nil, flags.Usagef("--temps %s: want numbers from 0 to 100, or recommended", name)
		}
		o.Temperatures = append(o.Temperatures, t)
	}
	for _, b := range f.batches {
		if b < 1 || b > 64 {
			return nil, flags.Usagef("--batches %d: want numbers from 1 to 64", b)
		}
	}
	for _, name := range f.rules {
		rule, err := spec.ParseRule(name)
		if err != nil {
			return nil, flags.Usagef("--rules %s: want exact, ratio or both", name)
		}
		o.Rules = append(o.Rules, rule)
	}
	for _, name := range f.depths {
		depth, err := strconv.Atoi(name)
		if name == "auto" {
			depth, err = bench.AutoDepth, nil
		}
		if err != nil || depth == 0 || depth > spec.MaxDepth || depth < bench.AutoDepth {
			return nil, flags.Usagef("--depths %s: want auto, or numbers from 1 to %d; plain decoding is always measured", name, spec.MaxDepth)
		}
		o.Depths = append(o.Depths, depth)
	}
	for name, n := range map[string]int{"classes": len(f.classes), "temps": len(f.temps), "batches": len(f.batches), "contexts": len(f.contexts), "rules": len(f.rules), "depths": len(f.depths)} {
		if n == 0 {
			return nil, flags.Usagef("--%s: the list is empty", name)
		}
	}
	o.Classes, o.Batches, o.Contexts = f.classes, f.batches, f.contexts
	return o, nil
}

// unless sets a list, unless it was given.
func unless[T any](given bool, list *[]T, values ...T) {
	if !given {
		*list = values
	}
}

// machineLoad is the load of the machine, if the system reports it.
func machineLoad() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(data))
	if len(fields) == 0 {
		return ""
	}
	return fmt.Sprintf("Load of the machine at the end, these threads included: %s on %d processors.", fields[0], load.Processors)
}
