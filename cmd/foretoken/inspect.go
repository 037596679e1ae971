package main

import (
	"encoding/json"
	"errors"
	"math"
	"os"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/doctor"
)

// inspection is a run of the command inspect.
type inspection struct {
	context, batch setting[int]
	json           bool
}

func newInspectCommand() *cobra.Command {
	f := &inspection{context: whole(1, math.MaxInt32), batch: whole(1, 1<<20)}
	cmd := &cobra.Command{
		Use:   "inspect MODEL",
		Short: "Say what a checkpoint is, from its headers",
		Long: `Inspect says what a checkpoint is: sizes, layers, parameters, bits by part, the memory it needs,
its multi-token-prediction head, tokenizer and chat template, and what is wrong with its files.
It reads headers, JSON files and the numbers of a few norms, so it takes no time however large
the model is; foretoken doctor loads a model and measures it.

MODEL is what --model of other commands takes. Of a damaged folder it shows what there is.

Exit status: 0, 1 if the model cannot be loaded as it is, 2 for a mistake in the command line.`,
		Example: `  foretoken inspect tiny
  foretoken inspect ~/models/Qwen3.5-4B --context 32768 --batch 4
  foretoken inspect ~/models/Qwen3.5-4B --json`,
		Args:              oneModel,
		ValidArgsFunction: completeOneModel,
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	memory := newFlagGroup("Memory")
	memory.flags.Flags().Var(&f.context, "context", "tokens of a sequence to count memory for (default: what the model allows, at most 4096)")
	memory.flags.Flags().Var(&f.batch, "batch", "sequences to count memory for (default 1)")
	output := newFlagGroup("Output")
	output.flags.Flags().BoolVar(&f.json, "json", false, "print the facts as one JSON object")
	addGroups(cmd, memory, output)
	return cmd
}

// errUnloadable ends a command that has said what is wrong with a model.
var errUnloadable = errors.New("the model cannot be loaded as it is")

func (f *inspection) run(cmd *cobra.Command, name string) (err error) {
	c, err := examineCheckpoint(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	facts := inspect(c, name, f.context.or(0), f.batch.or(1))
	out := newConsole(cmd)
	if f.json {
		err = writeJSON(out, facts)
	} else {
		err = out.write(facts.Table())
	}
	if err == nil && !facts.Loadable {
		err = errUnloadable
	}
	return err
}

// inspect is what the files of a checkpoint say, which the user has called name.
func inspect(c *checkpoint.Checkpoint, name string, context, batch int) *doctor.Facts {
	return doctor.Inspect(c, doctor.InspectOptions{
		Name: name, Context: context, Batch: batch, Devices: backend.List(),
		Template: func(c *checkpoint.Checkpoint) (source, tools string, err error) {
			t, err := c.Templates()
			return t.Plain, t.Tools, err
		},
	})
}

// examineCheckpoint opens a model as openCheckpoint does, and of a folder that it refuses
// whatever there is.
func examineCheckpoint(name string) (*checkpoint.Checkpoint, error) {
	c, err := openCheckpoint(name)
	if err == nil || name == embeddedName {
		return c, err
	}
	path, unknown := resolveModel(name)
	if unknown != nil {
		return nil, err
	}
	if info, failed := os.Stat(path); failed != nil || !info.IsDir() {
		return nil, err
	}
	return checkpoint.Examine(path)
}

// writeJSON prints one object, for scripts and for people.
func writeJSON(c *console, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return c.write(string(text) + "\n")
}

// oneModel demands the name of a model and nothing else.
func oneModel(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return usagef("%s needs a model: a checkpoint folder, a GGUF file, a model of the cache, or %s for the one inside the program", cmd.CommandPath(), embeddedName)
	case 1:
		return nil
	}
	return usagef("%s takes one model, but there is also %q", cmd.CommandPath(), args[1])
}

// completeOneModel lets a shell complete what --model of other commands takes.
func completeOneModel(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeModelName(typed)
}
