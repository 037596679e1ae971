package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/bench"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// compareBench is a run of the command bench compare.
type compareBench struct {
	model              *load.Flags
	peer               string
	prompts, generates []int
	depths             []int
	repeats            flags.Setting[int]
	out                *benchOutput
}

// compareRepeats is the default of --repeats.
const compareRepeats = 5

func newBenchCompareCommand() *cobra.Command {
	f := &compareBench{
		model: load.NewFlags(), prompts: []int{512}, generates: []int{128}, depths: []int{0}, repeats: flags.Whole(1, 1000), out: &benchOutput{},
	}
	cmd := &cobra.Command{
		Use:   "compare --peer-cmd COMMAND --model FILE.gguf",
		Short: "Compare with llama-bench of llama.cpp on the same file",
		Long: `Compare alternates between llama-bench of llama.cpp and this engine with the same GGUF file, number of
threads and lengths, without speculative decoding. It measures prefill of --prompts tokens and
decoding of --generates tokens of one sequence, both after each context of --depths tokens. It prints
the ratio of the rates per repetition, as a median with its interval, and the peak resident memory of
both programs. This engine computes a context once and keeps it in the prefix cache; llama-bench
computes it every time.

The program gets -m, -t, -p, -n, -d (if there is a depth), -r 1 and -o jsonl after its own arguments.
Output as a table is also accepted. No shell is used: arguments are separated by blanks.`,
		Example: `  foretoken bench compare --peer-cmd llama-bench --model Qwen3.5-2B-Q4_0.gguf
  foretoken bench compare --peer-cmd "./llama-bench -fa 1" --model m.gguf --threads 8 --prompts 512,2048 --generates 64 --html report.html`,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	g := flags.NewGroup("Comparison")
	fs := g.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.peer, "peer-cmd", "", "benchmark `PROGRAM` of the peer, optionally with arguments")
	fs.StringVar(&f.model.Model, "model", "", "GGUF `FILE` for both programs")
	fs.IntSliceVar(&f.prompts, "prompts", f.prompts, "`LIST` of prompt lengths in tokens; 0: no prefill")
	fs.IntSliceVar(&f.generates, "generates", f.generates, "`LIST` of numbers of tokens to generate; 0: no decoding")
	fs.IntSliceVar(&f.depths, "depths", f.depths, "`LIST` of context lengths before the measurement, in tokens")
	fs.Var(&f.repeats, "repeats", fmt.Sprintf("number of repetitions (default %d)", compareRepeats))
	ours := flags.NewGroup("Our side (the peer also gets --threads)")
	ours.Flags().SortFlags = false
	f.model.KV.Add(ours, "16")
	f.model.AddDevice(ours)
	flags.AddGroups(cmd, g, ours, f.out.group())
	load.CompleteDevice(cmd)
	load.CompleteKV(cmd)
	flags.Must(cmd.MarkFlagFilename("model", "gguf"))
	f.out.complete(cmd)
	return cmd
}

func (f *compareBench) run(cmd *cobra.Command) (err error) {
	peer, err := f.validate()
	if err != nil {
		return err
	}
	if err := f.out.prepare(); err != nil {
		return err
	}
	c := console.New(cmd)
	ctx, stop := console.Interruptible(cmd.Context())
	defer stop()
	b, err := f.model.OpenDevice()
	if err != nil {
		return err
	}
	bar := console.NewProgress(c, f.model.Model)
	m, err := console.UnlessInterrupted(ctx, func() (model.Model, error) { return f.open(b, bar) })
	if errors.Is(err, console.ErrInterrupted) {
		return err // the end of the process ends the loading
	}
	bar.End()
	defer func() { err = errors.Join(err, b.Close()) }()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	recorder := &bench.Recorder{}
	deep := slices.ContainsFunc(f.depths, func(n int) bool { return n > 0 }) // a context is computed once
	e, err := engine.New(m, state.NewPool(b, math.MaxInt64), engine.Options{Observe: recorder.Observe, Cache: deep})
	if err != nil {
		return err
	}
	defer e.Close()
	r, err := bench.Compare(ctx, peer, recorder.On(e), bench.CompareOptions{
		File: f.model.Model, Threads: f.model.Threads.Or(load.Threads()), Prompts: f.prompts, Generates: f.generates, Depths: f.depths,
		Repeats: f.repeats.Or(compareRepeats), Vocab: m.Info().Vocab, Progress: c.Step,
	})
	if errors.Is(err, context.Canceled) {
		return console.ErrInterrupted
	}
	if err != nil {
		return err
	}
	r.Model, r.Device, r.Load = filepath.Base(f.model.Model), b.Name(), machineLoad()
	return f.out.write(c, r)
}

// open loads the weights only: no text is needed here, so that a file without a tokenizer
// will do, as it does for the peer.
func (f *compareBench) open(b backend.Backend, bar *console.Progress) (_ model.Model, err error) {
	k, err := load.Checkpoint(f.model.Model)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	return model.Open(k, b, model.Options{KVBits: f.model.KV.Options(), NoVision: true, NoHead: true, Progress: bar.Report, Log: slog.New(slog.DiscardHandler)})
}

func (f *compareBench) validate() (bench.Peer, error) {
	peer := strings.Fields(f.peer)
	if len(peer) == 0 {
		return nil, flags.Usagef("--peer-cmd is missing: give the peer's benchmark program, such as llama-bench")
	}
	if _, err := exec.LookPath(peer[0]); err != nil {
		return nil, flags.Usagef("--peer-cmd %s: %v", peer[0], err)
	}
	if !strings.HasSuffix(f.model.Model, ".gguf") {
		return nil, flags.Usagef("--model %s: want a GGUF file, which both programs support, with a name that ends in .gguf", f.model.Model)
	}
	lengths := slices.Concat(f.prompts, f.generates)
	for _, n := range lengths {
		if n < 0 || n > 1<<20 {
			return nil, flags.Usagef("--prompts and --generates: want numbers from 0 to %d, not %d", 1<<20, n)
		}
	}
	if len(lengths) == 0 || slices.Max(lengths) == 0 {
		return nil, flags.Usagef("--prompts and --generates: nothing to measure")
	}
	for _, n := range f.depths {
		if n < 0 || n > 1<<20 {
			return nil, flags.Usagef("--depths: want numbers from 0 to %d, not %d", 1<<20, n)
		}
	}
	return peer, nil
}
