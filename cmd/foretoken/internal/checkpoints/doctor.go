package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/doctor"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/drafter"
	"github.com/foretoken/foretoken/internal/offload"
	"github.com/foretoken/foretoken/internal/spec"
)

// consultation is a run of the command doctor.
type consultation struct {
	compute, quantize flags.Setting[string]
	load.DeviceFlags
	load.OffloadFlags
	drafter string
	limit   time.Duration
	html    string
	json    bool
}

// Doctor is the command that looks for problems of a checkpoint.
func Doctor() *cobra.Command {
	f := &consultation{
		compute: flags.Choice("int8", "float32"), quantize: flags.Choice("4", "5", "6", "8"), DeviceFlags: load.NewDeviceFlags(), OffloadFlags: load.NewOffloadFlags(),
		limit: time.Minute,
	}
	cmd := &cobra.Command{
		Use:   "doctor MODEL",
		Short: "Measure a model with its head and drafter, and diagnose defects",
		Long: `Doctor loads a model, measures it on this machine and reports defects with remedies. It does not
change the model. It measures:

  perplexity on a built-in text;
  acceptance of the draft tokens of the multi-token-prediction head, on text that the model
  generates, with the head unchanged and with known damage by converters reverted;
  the same for a drafter, with --drafter: other taps, norms, windows, kinds and positions
  are tried;
  whether the model can tell two images apart, if it has a vision tower;
  the cost of passes and draft tokens, and the fastest draft depth.

MODEL is a value of --model of other commands.

Exit status: 0 success, 1 the model has a defect, 2 invalid command line, 130 interrupted by Ctrl-C.`,
		Example: `  foretoken doctor tiny
  foretoken doctor ~/models/Qwen3.5-4B --html report.html
  foretoken doctor ~/models/Qwen3.5-4B --quantize 4 --json
  foretoken doctor ~/models/Qwen3.6-27B --drafter ~/models/Qwen3.6-27B-DFlash`,
		Args:              oneModel,
		ValidArgsFunction: completeOneModel,
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	how := flags.NewGroup("Options")
	fs := how.Flags()
	fs.SortFlags = false
	fs.DurationVar(&f.limit, "limit", f.limit, "approximate time to measure; a slow model takes at least the time of a few hundred tokens")
	fs.StringVar(&f.drafter, "drafter", "", "measure this drafter too: a `DIR`, a GGUF file or a pulled drafter (ORG/NAME)")
	fs.Var(&f.compute, "compute", "arithmetic for quantized weights (default int8)")
	fs.Var(&f.quantize, "quantize", "quantize the weights to this number of bits on load (default: as in the files)")
	f.AddDevice(how)
	f.AddOffload(how)
	output := flags.NewGroup("Output")
	output.Flags().StringVar(&f.html, "html", "", "write a page with plots to `FILE`")
	output.Flags().BoolVar(&f.json, "json", false, "print the report as one JSON object")
	flags.AddGroups(cmd, how, output)
	load.CompleteDevice(cmd)
	for name, words := range map[string][]cobra.Completion{"compute": {"int8", "float32"}, "quantize": {"4", "5", "6", "8"}} {
		flags.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
	}
	load.CompleteDrafter(cmd)
	flags.Must(cmd.MarkFlagFilename("html", "html"))
	return cmd
}

func (f *consultation) run(cmd *cobra.Command, name string) (err error) {
	if f.limit <= 0 {
		return flags.Usagef("--limit %v: want a time above 0, such as 30s", f.limit)
	}
	if f.html != "" { // better now than after a minute of measuring
		page, err := os.OpenFile(f.html, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("--html: %w", err)
		}
		if err := page.Close(); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	c := console.New(cmd)
	k, err := examineCheckpoint(name)
	if err != nil {
		return err
	}
	facts := inspect(k, doctor.InspectOptions{Name: name, Batch: 1, Devices: backend.List(), Offload: offload.Want(f.Offload())})
	if !facts.Loadable {
		if f.json {
			err = console.WriteJSON(c, facts)
		} else {
			err = c.Write(facts.Table())
		}
		return errors.Join(err, k.Close(), errUnloadable)
	}
	ctx, stop := console.Interruptible(cmd.Context())
	defer stop()
	report, err := console.UnlessInterrupted(ctx, func() (*doctor.Report, error) { return f.examine(ctx, c, k, facts) })
	if err != nil {
		return err
	}
	return f.show(c, report)
}

// examine loads the model, measures it, and closes everything.
func (f *consultation) examine(ctx context.Context, c *console.Console, k *checkpoint.Checkpoint, facts *doctor.Facts) (_ *doctor.Report, err error) {
	files, err := load.DrafterFor(f.drafter, k)
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	if files != nil {
		defer func() { err = errors.Join(err, files.Close()) }()
	}
	bar := console.NewProgress(c, facts.Name)
	o := model.Options{MaxDrafts: spec.MaxDepth, Progress: bar.Report, Log: slog.New(slog.DiscardHandler)}
	if f.compute.Value == "float32" {
		o.Compute = backend.Float32
	}
	if f.quantize.Given {
		o.Quantize, _ = strconv.Atoi(f.quantize.Value) // one of a few that are numbers
	}
	b, where, err := f.openFor(k, offload.Options{Quantize: o.Quantize, KVBits: o.CacheBits()})
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	m, err := model.Open(k, b, o)
	bar.End()
	if err == nil {
		err = facts.MeasureText(k)
	}
	if err = errors.Join(err, k.Close()); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	say := func(what string) {
		if c.ErrTerminal {
			c.Remark(what + " …")
		}
	}
	want := doctor.ExamineOptions{Limit: f.limit, Progress: say, Device: where, DrafterName: f.drafter}
	if files != nil {
		if want.Drafter, err = openDrafter(files, m, b, o); err != nil {
			return nil, fmt.Errorf("drafter %s: %w", f.drafter, err)
		}
		defer func() { err = errors.Join(err, want.Drafter.Close()) }()
	}
	return doctor.Examine(ctx, facts, m, b, want)
}

// openDrafter loads a drafter for a model.
func openDrafter(files *checkpoint.Checkpoint, m model.Model, b backend.Backend, o model.Options) (*drafter.Drafter, error) {
	target, ok := m.(model.Lender)
	if !ok {
		return nil, errors.New("models of this family cannot be used with a drafter")
	}
	return drafter.Open(files, target, b, o)
}

// openFor opens the device for a model, and the CPU for the part that does not fit; where describes
// the placement in that case.
func (f *consultation) openFor(k *checkpoint.Checkpoint, o offload.Options) (b backend.Backend, where string, err error) {
	n := f.Threads.Or(load.Threads())
	load.AddSlot(n)
	b, plan, err := offload.For(k, offload.Devices{Name: f.Device.Value, How: backend.Options{Threads: n, ISA: f.ISA.Value}}, offload.Want(f.Offload()), o)
	if err != nil {
		return nil, "", load.Explain(err)
	}
	if plan != nil {
		where = plan.String()
	}
	return b, where, nil
}

// show prints the report and writes the page. A fault of the model is an error.
func (f *consultation) show(c *console.Console, r *doctor.Report) error {
	if f.html != "" {
		if err := os.WriteFile(f.html, []byte(r.Page()), 0o644); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	var err error
	if f.json {
		err = console.WriteJSON(c, r)
	} else {
		err = c.Write(r.Text(c.PlotStyle()))
	}
	if err == nil && !r.Healthy {
		err = errors.New("the model has problems: see the findings")
	}
	return err
}
