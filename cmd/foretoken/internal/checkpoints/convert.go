package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/convert"
	"github.com/foretoken/foretoken/internal/dtype"
)

// conversion is a run of the command convert.
type conversion struct {
	model, out string
	writing    writingFlags

	quantize, dequantize bool
	bits, group          flags.Setting[string]
	mode                 flags.Setting[string]
	overrides            overrideTexts
	headBits, visionBits flags.Setting[string]
	dtype                flags.Setting[string]
	noVision             bool
}

// Convert is the command that writes a checkpoint in another encoding.
func Convert() *cobra.Command {
	v := &conversion{
		model: load.Embedded, writing: newWritingFlags(),
		bits: flags.Choice("2", "3", "4", "5", "6", "8"), group: flags.Choice("32", "64", "128"),
		mode: flags.Choice("affine", "mxfp4", "nvfp4", "mxfp8"), headBits: flags.Choice("2", "3", "4", "5", "6", "8", "16"), visionBits: flags.Choice("4", "8", "16"),
		dtype: flags.Choice("float16", "bfloat16", "float32"),
	}
	cmd := &cobra.Command{
		Use:   "convert --model MODEL --out DIR [flags]",
		Short: "Convert a checkpoint to the layout of MLX, with its head and vision tower, quantized or not",
		Long: `Convert writes a model as a folder for foretoken, mlx-lm and mlx-vlm. The input has the layout of
the releases or of another converter, with bf16, f16, f32, fp8 or quantized weights. The
multi-token-prediction head may be inside the weights or in a separate file.

By default nothing is rounded; norms become float32 if adding 1 to them needs it. Formats that MLX
lacks (fp8, and Q6_K and IQ4 of GGUF) are written unquantized. --dtype rounds everything to one type,
which is fastest in MLX.

Without --mtp-bits, --vision-bits or an override, the head and the vision tower keep their precision.
mtp.fc gets at least 8 bits. An unusable vision tower is dropped. Routers of experts get 8 bits. A
matrix whose rows cannot be divided into groups is unchanged. A quantized model is requantized only
on request, from its dequantized values.

--q-override takes PATTERN=ENCODING. The pattern is a glob for the whole path of a module: * matches
any text, ? any letter, [abc] one of the letters. Examples of paths: layers.0.mlp.down_proj,
embed_tokens, lm_head, mtp.fc, visual.blocks.0.attn.qkv. The names of MLX work too, such as
language_model.model.layers.0.mlp.down_proj. The encoding is bits, bits:group, a mode (mxfp4, nvfp4,
mxfp8) or a dtype. If several patterns match, the last one applies.

The folder appears when it is complete. Ctrl-C leaves no files.`,
		Example: `  foretoken convert --model Qwen/Qwen3.5-4B --out Qwen3.5-4B-4bit -q
  foretoken convert --model ~/models/Qwen3.5-35B-A3B --out out -q --q-bits 5 --q-group-size 32 --mtp-bits 8
  foretoken convert --model in --out out -q --q-override '*.v_proj=6' --q-override 'lm_head=8:32'
  foretoken convert --model Qwen3.5-4B-4bit --out plain --dequantize --dtype bfloat16`,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return v.run(cmd) },
	}
	source := flags.NewGroup("Model")
	source.Flags().StringVar(&v.model, "model", v.model, "input `MODEL`: a folder, a GGUF file, a pulled model (ORG/NAME), or "+load.Embedded)
	source.Flags().StringVar(&v.out, "out", "", "output `DIR`")
	numbers := flags.NewGroup("Encoding (default: unchanged)")
	fs := numbers.Flags()
	fs.SortFlags = false
	fs.BoolVarP(&v.quantize, "quantize", "q", false, "quantize the matrices of the model except those of the head")
	fs.Var(&v.bits, "q-bits", fmt.Sprintf("bits per weight (default %d)", convert.DefaultBits))
	fs.Var(&v.group, "q-group-size", fmt.Sprintf("weights per scale (default %d)", convert.DefaultGroup))
	fs.Var(&v.mode, "q-mode", "affine: integers with scale and bias; others: small floats with a scale (default affine)")
	fs.Var(&v.overrides, "q-override", "encoding of the modules that match, with or without --quantize; may be repeated")
	fs.Var(&v.headBits, "mtp-bits", "bits of the multi-token-prediction head; 16: not quantized (default: unchanged)")
	fs.BoolVar(&v.dequantize, "dequantize", false, "write every quantized matrix unquantized")
	fs.Var(&v.dtype, "dtype", "type of unquantized numbers, scales and norms (default: unchanged)")
	fs.Var(&v.visionBits, "vision-bits", "bits of the vision tower; 16: not quantized (default: unchanged)")
	fs.BoolVar(&v.noVision, "no-vision", false, "drop the vision tower and its files")
	kept := false
	fs.BoolVar(&kept, "keep-vision", false, "has no effect: the vision tower is kept unless --no-vision is given")
	flags.Must(fs.MarkHidden("keep-vision"))
	flags.AddGroups(cmd, source, numbers, v.writing.group())
	completeWriting(cmd, map[string][]cobra.Completion{
		"q-bits": {"2", "3", "4", "5", "6", "8"}, "q-group-size": {"32", "64", "128"}, "mtp-bits": {"2", "3", "4", "5", "6", "8", "16"}, "vision-bits": {"4", "8", "16"},
		"q-mode": {"affine", "mxfp4", "nvfp4", "mxfp8"}, "dtype": {"float16", "bfloat16", "float32"},
	})
	return cmd
}

func (v *conversion) run(cmd *cobra.Command) error {
	o, err := v.options()
	if err != nil {
		return err
	}
	if v.out == "" {
		return flags.Usagef("--out is missing: give the folder to write")
	}
	src := func() (*checkpoint.Checkpoint, error) { return load.Checkpoint(v.model) }
	return v.writing.do(cmd, "converting", v.out, o, src, func(ctx context.Context, c *checkpoint.Checkpoint, o convert.Options) (convert.Summary, error) {
		return convert.Convert(ctx, c, v.out, o)
	})
}

// options are those of the flags.
func (v *conversion) options() (o convert.Options, err error) {
	for name, given := range map[string]bool{"q-bits": v.bits.Given, "q-group-size": v.group.Given, "q-mode": v.mode.Given} {
		if given && !v.quantize {
			return o, flags.Usagef("--%s needs --quantize", name)
		}
	}
	if v.quantize && v.dequantize {
		return o, flags.Usagef("--quantize and --dequantize cannot be combined")
	}
	if v.noVision && v.visionBits.Given {
		return o, flags.Usagef("--vision-bits and --no-vision cannot be combined")
	}
	o.Dequantize, o.NoVision = v.dequantize, v.noVision
	group, _ := strconv.Atoi(v.group.Or(strconv.Itoa(convert.DefaultGroup))) // one of a few numbers
	if v.quantize {
		if o.Quantize, err = v.encoding(group); err != nil {
			return o, err
		}
	}
	if o.Head, err = bitsEncoding(&v.headBits, group); err == nil {
		o.Vision, err = bitsEncoding(&v.visionBits, group)
	}
	if err != nil {
		return o, err
	}
	for _, text := range v.overrides {
		x, err := convert.ParseOverride(text, group)
		if err != nil {
			return o, flags.Usage(err)
		}
		o.Overrides = append(o.Overrides, x)
	}
	if v.dtype.Given {
		o.Type, err = convert.ParseType(v.dtype.Value)
	}
	return o, err
}

// bitsEncoding is the encoding of a part by its bits, nil if none were given.
func bitsEncoding(bits *flags.Setting[string], group int) (*convert.Encoding, error) {
	switch {
	case !bits.Given:
		return nil, nil
	case bits.Value == "16":
		return &convert.Encoding{Format: dtype.Plain}, nil
	}
	e, err := convert.ParseEncoding(bits.Value, group)
	return &e, err
}

// encoding is that of the model without its head and its vision tower.
func (v *conversion) encoding(group int) (*convert.Encoding, error) {
	mode := v.mode.Or("affine")
	text := mode
	if mode == "affine" {
		text = v.bits.Or(strconv.Itoa(convert.DefaultBits))
	} else if v.bits.Given || v.group.Given {
		return nil, flags.Usagef("--q-mode %s has fixed bits and group size: leave out --q-bits and --q-group-size", mode)
	}
	e, err := convert.ParseEncoding(text, group)
	return &e, err
}

// overrideTexts collects overrides, whose meaning depends on other flags.
type overrideTexts []string

// Set implements the flag library's Value.
func (t *overrideTexts) Set(text string) error {
	if _, err := convert.ParseOverride(text, convert.DefaultGroup); err != nil {
		return err
	}
	*t = append(*t, text)
	return nil
}

// String lists the overrides.
func (t *overrideTexts) String() string { return (*flags.Texts)(t).String() }

// Type names the value in help.
func (t *overrideTexts) Type() string { return "PATTERN=ENCODING" }

// writingFlags are common to commands that write weights.
type writingFlags struct {
	shard   flags.Setting[int64]
	threads flags.Setting[int]
	force   bool
	verbose bool
}

func newWritingFlags() writingFlags {
	return writingFlags{shard: flags.ByteCount(), threads: flags.Whole(1, 1024)}
}

func (f *writingFlags) group() flags.Group {
	g := flags.NewGroup("Output")
	fs := g.Flags()
	fs.SortFlags = false
	fs.Var(&f.shard, "shard-size", "maximum size of one weight file (default 5GB)")
	fs.Var(&f.threads, "threads", "compute threads (default: one per processor)")
	fs.BoolVar(&f.force, "force", false, "replace an existing model")
	fs.BoolVar(&f.verbose, "verbose", false, "report details on standard error")
	return g
}

// completeWriting adds shell completion to a command with --model and --out.
func completeWriting(cmd *cobra.Command, words map[string][]cobra.Completion) {
	for name, list := range words {
		flags.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)))
	}
	flags.Must(cmd.RegisterFlagCompletionFunc("model", func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return load.CompleteName(typed)
	}))
}

// work writes something of a checkpoint.
type work func(ctx context.Context, c *checkpoint.Checkpoint, o convert.Options) (convert.Summary, error)

// do opens a checkpoint, runs w with a progress bar, and prints the result. what is the
// verb of the bar, and out is the path of the output.
func (f *writingFlags) do(cmd *cobra.Command, what, out string, o convert.Options, open func() (*checkpoint.Checkpoint, error), w work) (err error) {
	c := console.New(cmd)
	log := console.NewNotes(f.verbose)
	ctx, stop := console.Interruptible(cmd.Context())
	defer stop()
	src, err := open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	bar := console.NewBar(c)
	o.ShardSize, o.Force, o.Threads = f.shard.Or(0), f.force, f.threads.Or(0)
	o.Log = slog.New(log)
	o.Progress = func(p convert.Progress) {
		bar.Describe(fmt.Sprintf("%s %d of %d tensors", what, p.Tensors, p.AllTensors), p.Bytes, p.AllBytes)
	}
	start := time.Now()
	s, err := w(ctx, src, o)
	bar.End()
	log.Show(c.Err)
	switch {
	case errors.Is(err, context.Canceled):
		return console.ErrInterrupted
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w; --force replaces it", err)
	case err != nil:
		return err
	}
	return c.Write(fmt.Sprintf("%s: %s, in %.1f s\n", console.Printable(out), &s, time.Since(start).Seconds()))
}
