package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/convert"
)

// MTP is the command that extracts and injects heads.
func MTP() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mtp",
		Short: "Extract, inject or remove a multi-token-prediction head",
		Args:  flags.KnownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newExtractCommand(), newInjectCommand(), newRemoveCommand())
	return cmd
}

// headFlags are those of the commands about heads.
type headFlags struct {
	model, head, out string
	writing          writingFlags
}

func (f *headFlags) group(out string) flags.Group {
	g := flags.NewGroup("Model")
	fs := g.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.model, "model", "", "input `MODEL`: a folder, a GGUF file, a pulled model (ORG/NAME), or "+load.Embedded)
	fs.StringVar(&f.out, "out", "", out)
	return g
}

// need refuses to go on without the named flags.
func (f *headFlags) need(values map[string]string) error {
	for _, name := range []string{"model", "head", "out"} {
		if v, needed := values[name]; needed && v == "" {
			return flags.Usagef("--%s is missing", name)
		}
	}
	return nil
}

func newExtractCommand() *cobra.Command {
	f := &headFlags{writing: newWritingFlags()}
	cmd := &cobra.Command{
		Use:   "extract --model MODEL --out FILE|DIR",
		Short: "Extract the head of a checkpoint",
		Long: `Extract writes the multi-token-prediction head of a checkpoint, with unchanged precision and its
norms as gains. The output is a file with the extension .safetensors, or a folder with a config,
which mlx-vlm loads as a drafter. If the input folder has an index, only the files with the head
are needed.`,
		Example: `  foretoken mtp extract --model ~/models/Qwen3.5-4B --out mtp.safetensors
  foretoken mtp extract --model ~/models/Qwen3.5-4B --out ~/models/Qwen3.5-4B-mtp`,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.need(map[string]string{"model": f.model, "out": f.out}); err != nil {
				return err
			}
			open := func() (*checkpoint.Checkpoint, error) { return openHead(f.model, nil) }
			return f.writing.do(cmd, "extracting", f.out, convert.Options{}, open, func(ctx context.Context, c *checkpoint.Checkpoint, o convert.Options) (convert.Summary, error) {
				return convert.ExtractHead(ctx, c, f.out, o)
			})
		},
	}
	flags.AddGroups(cmd, f.group("output `FILE` with the extension .safetensors, or DIR"), f.writing.group())
	completeWriting(cmd, nil)
	return cmd
}

// openHead opens the head of a model. config is that of the target model, which a single
// file needs.
func openHead(name string, config []byte) (*checkpoint.Checkpoint, error) {
	if name == load.Embedded {
		return load.Checkpoint(name)
	}
	path, err := load.Resolve(name)
	if err != nil {
		return nil, err
	}
	if filepath.Ext(path) == ".gguf" {
		return load.Checkpoint(path)
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() && config == nil {
		return nil, fmt.Errorf("--model %s is a file: give the folder of a model", name)
	}
	return convert.OpenHead(path, config)
}

func newInjectCommand() *cobra.Command {
	f := &headFlags{writing: newWritingFlags()}
	cmd := &cobra.Command{
		Use:   "inject --model DIR --head FILE|DIR [--out DIR]",
		Short: "Inject a head into a checkpoint",
		Long: `Inject adds a multi-token-prediction head to a checkpoint of the same shape. The head comes from a
weight file, a folder with only the head, or a model with a head.

Without --out, the head is written beside the weights as mtp.safetensors, and the index and config of
the folder are updated. With --out, a new folder is written like that of convert, with the head
inside. --force replaces an existing head; a head inside the weights can be replaced only with --out.`,
		Example: `  foretoken mtp inject --model ~/models/Qwen3.5-4B-4bit --head mtp.safetensors
  foretoken mtp inject --model ~/models/Qwen3.5-4B-4bit --head ~/models/Qwen3.5-4B --out whole`,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.inject(cmd) },
	}
	g := f.group("output `DIR`; without it the head is written beside the weights of --model")
	g.Flags().StringVar(&f.head, "head", "", "`FILE` or DIR that contains the head")
	flags.AddGroups(cmd, g, f.writing.group())
	completeWriting(cmd, nil)
	return cmd
}

func (f *headFlags) inject(cmd *cobra.Command) error {
	if err := f.need(map[string]string{"model": f.model, "head": f.head}); err != nil {
		return err
	}
	written := f.out
	if written == "" {
		path := ""
		if f.model != load.Embedded {
			var err error
			if path, err = load.Resolve(f.model); err != nil {
				return err
			}
		}
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			return flags.Usagef("--model %s is not a folder, so a head cannot be added to it: give a new folder with --out", f.model)
		}
		written = path
	}
	open := func() (*checkpoint.Checkpoint, error) { return load.Checkpoint(f.model) }
	return f.writing.do(cmd, "writing", written, convert.Options{}, open, func(ctx context.Context, c *checkpoint.Checkpoint, o convert.Options) (s convert.Summary, err error) {
		head, err := openHead(f.head, c.Config())
		if err != nil {
			return s, fmt.Errorf("--head: %w", err)
		}
		defer func() { err = errors.Join(err, head.Close()) }()
		return convert.InjectHead(ctx, c, head, f.out, o)
	})
}

func newRemoveCommand() *cobra.Command {
	f := &headFlags{writing: newWritingFlags()}
	cmd := &cobra.Command{
		Use:     "remove --model MODEL --out DIR",
		Short:   "Write a checkpoint without its head",
		Long:    "Remove converts a checkpoint like convert and drops its multi-token-prediction head.",
		Example: `  foretoken mtp remove --model ~/models/Qwen3.5-4B --out Qwen3.5-4B-bare`,
		Args:    flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.need(map[string]string{"model": f.model, "out": f.out}); err != nil {
				return err
			}
			open := func() (*checkpoint.Checkpoint, error) { return load.Checkpoint(f.model) }
			return f.writing.do(cmd, "writing", f.out, convert.Options{}, open, func(ctx context.Context, c *checkpoint.Checkpoint, o convert.Options) (convert.Summary, error) {
				return convert.RemoveHead(ctx, c, f.out, o)
			})
		},
	}
	flags.AddGroups(cmd, f.group("output `DIR`"), f.writing.group())
	completeWriting(cmd, nil)
	return cmd
}
