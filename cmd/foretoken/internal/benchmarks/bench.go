// Package benchmarks has the command bench, which measures kernels, models, drafts and servers.
package benchmarks

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/bench"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/drafter"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/offload"
)

// Bench is the command.
func Bench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure speculative decoding, kernels, model sizes, servers and peers",
		Args:  flags.KnownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchDecodeCommand(), newBenchServeCommand(), newBenchCompareCommand(), newBenchModelCommand(), newBenchKernelsCommand())
	return cmd
}

// benchFlags are common to all measurements.
type benchFlags struct {
	load.DeviceFlags
	load.NodeFlags
	repeats flags.Setting[int]
	rows    []int
	json    bool
}

func newBenchFlags(rows ...int) *benchFlags {
	return &benchFlags{DeviceFlags: load.NewDeviceFlags(), NodeFlags: load.NewNodeFlags(), repeats: flags.Whole(1, 1000), rows: rows}
}

func (f *benchFlags) group() flags.Group {
	g := flags.NewGroup("Options")
	fs := g.Flags()
	fs.SortFlags = false
	fs.IntSliceVar(&f.rows, "rows", f.rows, "row counts of a pass")
	fs.Var(&f.repeats, "repeats", "number of repetitions; reports the median (default 7)")
	f.AddDevice(g)
	fs.BoolVar(&f.json, "json", false, "print the report as JSON")
	return g
}

// open checks the rows and opens the device.
func (f *benchFlags) open() (backend.Backend, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	return f.OpenDevice()
}

// check checks the rows.
func (f *benchFlags) check() error {
	if len(f.rows) == 0 {
		return flags.Usagef("--rows: want at least one number")
	}
	return within("rows", f.rows, 1, 4096)
}

// within refuses a number of a flag's list that is too small or too large.
func within(flag string, list []int, least, most int) error {
	for _, n := range list {
		if n < least || n > most {
			return flags.Usagef("--%s %d: want numbers from %d to %d", flag, n, least, most)
		}
	}
	return nil
}

// formSetting is a setting for the format of generated weights.
func formSetting() flags.Setting[string] {
	return flags.Setting[string]{
		Kind:  "NAME",
		Parse: func(text string) (string, error) { return text, nil },
		Check: func(text string) error {
			_, err := weights.ParseForm(text, 4)
			return err
		},
	}
}

// formHelp lists the formats of a flag.
func formHelp(flag string) string {
	text := "Formats of " + flag + ":"
	column := len(text)
	for i, name := range weights.FormNames() {
		if i > 0 {
			text, column = text+",", column+1
		}
		if column += 1 + len(name); column > 98 {
			text, column = text+"\n ", 2+len(name)
		}
		text += " " + name
	}
	return text + ".\nThe first five take NAME:BITS or NAME:BITS:GROUP too, such as zero-point:4:32."
}

// modelForm is the form of generated weights by the flags --bits and --format.
func modelForm(bits, format flags.Setting[string]) (weights.Form, error) {
	n, _ := strconv.Atoi(bits.Or("4")) // it is one of a few numbers
	if !format.Given {
		return weights.BitsForm(n), nil
	}
	f, err := weights.ParseForm(format.Value, n)
	if err == nil && bits.Given && f.Bits() != n {
		err = fmt.Errorf("--bits %d: %s has %d bits", n, format.Value, f.Bits())
	}
	if err != nil {
		return f, flags.Usage(err)
	}
	return f, nil
}

// openFor opens the device for a generated model, and the processor beside it where that is wanted or needed.
func (f *benchFlags) openFor(ctx context.Context, o bench.ModelOptions, parts *load.OffloadFlags) (backend.Backend, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	more, err := f.Nodes(ctx, load.Nodes{})
	if err != nil {
		return nil, err
	}
	n := f.Threads.Or(load.Threads())
	load.AddSlot(n)
	longest := o.Context + slices.Max(append(slices.Clone(o.Prompts), slices.Max(o.Rows))) + 64
	b, plan, err := offload.ForShape(o.Shape, o.Form, offload.Devices{Name: f.Device.Value, How: backend.Options{Threads: n, ISA: f.ISA.Value}, More: more},
		offload.Want(parts.Offload()), offload.Options{KVBits: o.KVBits, Context: longest})
	if err != nil {
		return nil, load.Explain(err)
	}
	if plan != nil {
		if _, whole := plan.Whole(); !whole {
			o.Progress(plan.String())
		}
	}
	return b, nil
}

func newBenchModelCommand() *cobra.Command {
	f := newBenchFlags(1, 2, 4, 8)
	shape, bits, format, context := flags.Choice(model.Shapes()...), flags.Choice("2", "3", "4", "5", "6", "8", "16"), formSetting(), flags.Whole(0, 1<<18)
	kv, vision := load.NewKVFlags(), flags.Choice("2", "3", "4", "5", "6", "8", "16")
	prompts, images, pixels, blocks := []int{64, 512}, []string(nil), flags.Whole(1, 1<<26), []int(nil)
	parts := load.NewOffloadFlags()
	cmd := &cobra.Command{
		Use:   "model",
		Short: "Measure a model of a released size with random weights",
		Long: `Measure a model of a released size with random weights: passes over a few rows of one sequence,
prefill, a draft token of the head, and the share of each operation. With --blocks it also measures a
block drafter with random weights: one pass drafts a block of tokens. Every repetition also measures
the memory bandwidth as the reference of a pass. If the model does not fit on the GPU, some layers
are on the CPU, as in run and serve.

` + formHelp("--format"),
		Example: "  foretoken bench model --shape 2b --bits 4\n  foretoken bench model --shape 9b --format zero-point:4:32\n  foretoken bench model --shape 35b-a3b --format iq2_xs\n  foretoken bench model --shape 4b --context 16384 --prompts 512\n  foretoken bench model --shape 9b --blocks 8,16\n  foretoken bench model --images 640x480,1920x1080 --vision-bits 8",
		Args:    flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sizes, err := imageSizes(images)
			if err != nil {
				return err
			}
			if err := cmp.Or(within("prompts", prompts, 1, 1<<18), within("blocks", blocks, 2, drafter.MaxBlock)); err != nil {
				return err
			}
			form, err := modelForm(bits, format)
			if err != nil {
				return err
			}
			tower, _ := strconv.Atoi(vision.Or("16"))
			o := bench.ModelOptions{
				Shape: shape.Or("2b"), Form: form, Rows: f.rows, Prompts: prompts, Context: context.Or(0),
				KVBits: kv.Options(), Repeats: f.repeats.Or(7), Progress: f.say(cmd),
				Blocks: blocks, Images: sizes, MaxPixels: pixels.Or(1 << 20), VisionBits: tower, Machine: f.machine(),
			}
			b, err := f.openFor(cmd.Context(), o, &parts)
			if err != nil {
				return err
			}
			defer b.Close() //nolint:errcheck // the process ends
			r, err := bench.Model(b, o)
			if err != nil {
				return err
			}
			return f.print(cmd, r, func(w io.Writer) { printModel(w, r) })
		},
	}
	g := flags.NewGroup("Measurements")
	fs := g.Flags()
	fs.SortFlags = false
	fs.Var(&shape, "shape", "released size to measure (default 2b)")
	fs.Var(&bits, "bits", "bits per weight; 16: bf16 (default 4)")
	fs.Var(&format, "format", "weight format, listed above (default affine)")
	fs.Var(&context, "context", "tokens in the KV cache before each measurement (default 0)")
	kv.Add(g, "16")
	fs.IntSliceVar(&prompts, "prompts", prompts, "prompt lengths to prefill, in tokens")
	fs.IntSliceVar(&blocks, "blocks", nil, fmt.Sprintf("`LIST` of rows of a block, 2 to %d, of a DFlash drafter with the layers of published ones", drafter.MaxBlock))
	fs.StringSliceVar(&images, "images", nil, "`LIST` of image sizes in pixels, such as 640x480")
	fs.Var(&pixels, "max-image-pixels", "maximum pixels of an image; larger images are downscaled (default 1048576)")
	fs.Var(&vision, "vision-bits", "bits per weight of the vision tower; 16: bf16 (default 16)")
	how := f.group()
	parts.AddOffload(how)
	f.AddNodes(how)
	flags.AddGroups(cmd, g, how)
	load.CompletePlacement(cmd)
	load.CompleteKV(cmd)
	flags.Must(cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(weights.FormNames(), cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

func newBenchKernelsCommand() *cobra.Command {
	f := newBenchFlags(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 512)
	types := []string{"q4", "q8", "bf16", "q5", "q6"}
	every := false
	cmd := &cobra.Command{
		Use:   "kernels",
		Short: "Measure matrix products and memory bandwidth",
		Long: `Measure matrix products with weights from memory, alternating with plain memory reads. A few rows, as
in decoding, are bound by memory; 512 rows, as in prefill, are bound by arithmetic. The share of each
operation in a pass is reported by bench model.

q4 is short for affine:4. ` + formHelp("--types"),
		Example: "  foretoken bench kernels\n  foretoken bench kernels --types q4 --rows 1,2,3,4,5,6,7,8 --isa avx2",
		Args:    flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, t := range types {
				if _, err := bench.KernelForm(t); err != nil {
					return flags.Usagef("--types %s: want some of %s", t, strings.Join(bench.KernelTypes(), ", "))
				}
			}
			for _, set := range f.sets(every) {
				f.ISA.Value = set
				if err := f.kernels(cmd, types); err != nil {
					return err
				}
			}
			return nil
		},
	}
	g := flags.NewGroup("Measurements")
	g.Flags().BoolVar(&every, "all", false, "measure every instruction set of this machine")
	g.Flags().StringSliceVar(&types, "types", types, "weight types: q2 to q8, or formats listed above")
	flags.AddGroups(cmd, g, f.group())
	load.CompleteDevice(cmd)
	return cmd
}

// sets are the instruction sets to measure with: that of the flag, "" for the best, or every
// available one. A device without any, or a missing one, has only "": opening it reports the error.
func (f *benchFlags) sets(every bool) []string {
	if all := f.Runnable(); every && len(all) > 0 {
		return all
	}
	return []string{f.ISA.Value}
}

// kernels measures with one instruction set and prints the report.
func (f *benchFlags) kernels(cmd *cobra.Command, types []string) error {
	b, err := f.open()
	if err != nil {
		return err
	}
	defer b.Close() //nolint:errcheck // frees memory only
	r, err := bench.Kernels(b, bench.KernelOptions{Types: types, Rows: f.rows, Machine: f.machine(), Repeats: f.repeats.Or(7), Progress: f.say(cmd)})
	if err != nil {
		return err
	}
	return f.print(cmd, r, func(w io.Writer) { printKernels(w, r) })
}

// machine describes the program and the host, for reports that users compare.
func (f *benchFlags) machine() bench.Machine {
	m := bench.Machine{Version: load.Version, Threads: f.Threads.Value, Reason: "--threads"}
	if !f.Threads.Given {
		m.Threads, m.Reason = backend.Threads()
	}
	for _, d := range backend.List() {
		if d.Name == backend.HostName() {
			m.Processor = d.Detail
		}
	}
	return m
}

// printMachine prints the lines that precede each table.
func printMachine(w io.Writer, m *bench.Machine) {
	console.Tell(w, fmt.Sprintf("foretoken %s\n%s, %d threads: %s\n", m.Version, cmp.Or(m.Processor, "processor not known"), m.Threads, m.Reason))
}

// say reports progress on standard error.
func (f *benchFlags) say(cmd *cobra.Command) func(string) {
	return func(what string) { console.Tell(cmd.ErrOrStderr(), what+"\n") }
}

// print writes the report, as a table or as JSON.
func (f *benchFlags) print(cmd *cobra.Command, report any, table func(io.Writer)) error {
	c := console.New(cmd)
	if f.json {
		return console.WriteJSON(c, report)
	}
	var b strings.Builder
	table(&b)
	return c.Write(b.String())
}

func printModel(w io.Writer, r *bench.ModelReport) {
	printMachine(w, &r.Machine)
	console.Tell(w, fmt.Sprintf("%s, %s, %.2f G parameters, a pass reads %.2f GB, context %d of %d bits\n", r.Shape, formText(r), float64(r.Parameters)/1e9, float64(r.Bytes)/1e9, r.Context, r.KVBits))
	console.Tell(w, fmt.Sprintf("%s, memory reads at %.1f GB/s\n\n", r.Device, r.ReadGBs))
	console.Tell(w, "rows        ms      GB/s   of read   of one row   where the time goes\n")
	for i, p := range r.Passes {
		console.Tell(w, fmt.Sprintf("%4d  %8.2f  %8.1f  %8.2f  %11.2f   %s\n", p.Rows, p.Seconds*1e3, p.GBs, p.OfRead, p.OfOne, shareText(r.Shares[i])))
	}
	if r.Draft.Rows > 0 {
		console.Tell(w, fmt.Sprintf("draft %8.2f%32.2f   %s\n", r.Draft.Seconds*1e3, r.Draft.OfOne, shareText(r.DraftShare)))
	}
	console.Tell(w, "\n")
	for _, d := range r.Blocks {
		console.Tell(w, fmt.Sprintf("block of %d rows: %.2f ms, %.2f of a pass over one row; %.2f ms for a row of the text; a drafter of %.2f GB, %d tokens in its draft vocabulary\n",
			d.Rows, d.Seconds*1e3, d.OfOne, d.Append*1e3, float64(d.Bytes)/1e9, d.Vocab))
	}
	if len(r.Kernels) > 0 {
		printCosts(w, r.Passes[0].Rows, r.Kernels[0])
	}
	for _, p := range r.Prompts {
		after := ""
		if r.Context > 0 {
			after = fmt.Sprintf(" after %d", r.Context)
		}
		console.Tell(w, fmt.Sprintf("prompt of %d tokens%s: %.0f ms, %.1f tok/s, %.0f Gop/s in matrix products\n", p.Tokens, after, p.Seconds*1e3, p.TokensPerSec, p.GOps))
		console.Tell(w, fmt.Sprintf("  %s\n", shareText(p.Shares)))
	}
	for _, s := range r.Images {
		console.Tell(w, fmt.Sprintf("image of %d×%d: %d patches, %d tokens, %.0f ms in the tower of %d bits (longest step %.0f ms), %.0f Gop/s in matrix products, first token after %.0f ms\n",
			s.Width, s.Height, s.Patches, s.Tokens, s.Seconds*1e3, r.VisionBits, s.LongestStep*1e3, s.ProductsGOps, s.FirstToken*1e3))
		console.Tell(w, fmt.Sprintf("  %s\n", shareText(s.TowerShares)))
	}
}

// formText names the weights of a report: by their bits if they have the default format.
func formText(r *bench.ModelReport) string {
	if f := weights.BitsForm(r.Bits).String(); r.Format == f {
		return fmt.Sprintf("%d bits", r.Bits)
	}
	return r.Format
}

// printCosts prints the times of the kernels of a pass, in order.
func printCosts(w io.Writer, rows int, costs []backend.Cost) {
	count, seconds := 0, 0.0
	for _, c := range costs {
		count, seconds = count+c.Count, seconds+c.Seconds
	}
	console.Tell(w, fmt.Sprintf("rows %d: %d kernels, one after another %.2f ms\n", rows, count, seconds*1e3))
	console.Tell(w, "   times   µs each    µs all   kernel\n")
	for _, c := range costs {
		console.Tell(w, fmt.Sprintf("%8d  %8.2f  %8.1f   %s\n", c.Count, c.Seconds*1e6/float64(c.Count), c.Seconds*1e6, c.Kernel))
	}
	console.Tell(w, "\n")
}

// imageSizes reads a list of WIDTHxHEIGHT.
func imageSizes(list []string) (sizes [][2]int, err error) {
	for _, text := range list {
		w, h, ok := strings.Cut(text, "x")
		width, wide := strconv.ParseUint(w, 10, 15)
		height, high := strconv.ParseUint(h, 10, 15)
		if !ok || wide != nil || high != nil || width == 0 || height == 0 {
			return nil, flags.Usagef("--images: %q is not a valid size, want WIDTHxHEIGHT in pixels, such as 640x480", text)
		}
		sizes = append(sizes, [2]int{int(width), int(height)})
	}
	return sizes, nil
}

// shareText names the operations that take at least a hundredth.
func shareText(shares []bench.Share) string {
	var parts []string
	for _, s := range shares {
		if s.Part >= 0.01 {
			parts = append(parts, fmt.Sprintf("%s %.0f %%", s.Op, 100*s.Part))
		}
	}
	return strings.Join(parts, ", ")
}

func printKernels(w io.Writer, r *bench.KernelReport) {
	printMachine(w, &r.Machine)
	console.Tell(w, fmt.Sprintf("%s, memory reads at %.1f GB/s\n\n", r.Device, r.ReadGBs))
	width := len("type")
	for _, k := range r.Kernels {
		width = max(width, len(k.Type))
	}
	console.Tell(w, fmt.Sprintf("%-*s  rows        ms      GB/s   of read   of one row     Gop/s\n", width, "type"))
	for _, k := range r.Kernels {
		for _, p := range k.Passes {
			console.Tell(w, fmt.Sprintf("%-*s  %4d  %8.3f  %8.1f  %8.2f  %11.2f  %8.0f\n", width, k.Type, p.Rows, p.Seconds*1e3, p.GBs, p.OfRead, p.OfOne, p.GOps))
		}
	}
}
