package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// newRootCommand returns the program with all its commands. Each call returns a new one
// that shares nothing with the others.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "foretoken",
		Short: "Run Qwen3.5, GLM and DeepSeek-V3 models with exact speculative decoding",
		Long: `foretoken runs Qwen3.5, GLM and DeepSeek-V3 models with exact speculative decoding: from a
checkpoint folder, a GGUF file, the Hugging Face hub, or the small embedded model.`,
		Example: `  foretoken run "Tell me a story about a cat."
  foretoken pull Qwen/Qwen3.5-4B
  foretoken serve --model Qwen/Qwen3.5-4B --quantize 4
  foretoken generate --prompt "Once upon a time" --no-chat-template --temp 0 --json`,
		Version:                    version(),
		Args:                       knownCommand,
		SilenceErrors:              true, // execute prints them
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2, // edits to the nearest command
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("foretoken {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.AddCommand(newRunCommand(), newGenerateCommand(), newBenchCommand(), newInspectCommand(), newDoctorCommand(), newPullCommand(), newListCommand(), newRmCommand(), newDevicesCommand(), newConvertCommand(), newMTPCommand(), newServeCommand(), newWorkerCommand(), newBatchCommand(), newManCommand(), newVersionCommand())
	return root
}

// knownCommand refuses what is neither a command nor a flag.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q; did you mean %s?", args[0], strings.Join(near, " or "))
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return usagef("unknown command %q; the commands are %s", args[0], strings.Join(names, ", "))
}

// noArguments refuses everything but flags.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument, but there is %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// flagGroup is a part of a command's flags under a heading of its own.
type flagGroup struct {
	title string
	// flags is never run: it is a set of flags, for which cobra has no other type.
	flags *cobra.Command
}

// newFlagGroup returns an empty group.
func newFlagGroup(title string) flagGroup { return flagGroup{title, &cobra.Command{}} }

// addGroups gives the groups' flags to the command, and shows them as groups in its help.
func addGroups(cmd *cobra.Command, groups ...flagGroup) {
	for _, g := range groups {
		cmd.Flags().AddFlagSet(g.flags.Flags())
		cmd.Flags().SortFlags = false
	}
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		const width = 100
		var b strings.Builder
		fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
		if cmd.HasExample() {
			fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
		}
		for _, g := range groups {
			fmt.Fprintf(&b, "\n%s:\n%s", g.title, g.flags.Flags().FlagUsagesWrapped(width))
		}
		_, err := fmt.Fprint(cmd.OutOrStdout(), b.String())
		return err
	})
}
