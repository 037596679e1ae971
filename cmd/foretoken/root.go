package main

import (
	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/batches"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/benchmarks"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/checkpoints"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/hubcache"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/nodes"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/serving"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/terminal"
)

// newRootCommand returns the program with all its commands. Each call returns a new one
// that shares nothing with the others.
func newRootCommand() *cobra.Command {
	load.Version = version()
	root := &cobra.Command{
		Use:   "foretoken",
		Short: "Run Qwen3.5, GLM, DeepSeek-V3 and Gemma 4 models with exact speculative decoding",
		Long: `foretoken runs Qwen3.5, GLM, DeepSeek-V3 and Gemma 4 models with exact speculative decoding: from a
checkpoint folder, a GGUF file, the Hugging Face hub, or the small embedded model.`,
		Example: `  foretoken run "Tell me a story about a cat."
  foretoken pull Qwen/Qwen3.5-4B
  foretoken serve --model Qwen/Qwen3.5-4B --quantize 4
  foretoken generate --prompt "Once upon a time" --no-chat-template --temp 0 --json`,
		Version:                    version(),
		Args:                       flags.KnownCommand,
		SilenceErrors:              true, // execute prints them
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2, // edits to the nearest command
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("foretoken {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flags.Usage(err) })
	root.AddCommand(terminal.Run(), terminal.Generate(), benchmarks.Bench(), checkpoints.Inspect(), checkpoints.Doctor(), hubcache.Pull(), hubcache.List(), hubcache.Remove(), newDevicesCommand(), checkpoints.Convert(), checkpoints.MTP(), serving.Serve(), serving.Worker(), nodes.Node(), batches.Batch(), newManCommand(), newVersionCommand())
	return root
}
