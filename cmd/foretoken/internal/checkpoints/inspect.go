// Package checkpoints has the commands on checkpoint files: inspect, doctor, convert and mtp.
package checkpoints

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/doctor"
	"github.com/foretoken/foretoken/internal/offload"
)

// inspection is a run of the command inspect.
type inspection struct {
	load.OffloadFlags
	load.NodeFlags
	context, batch flags.Setting[int]
	gpuMemory      flags.Setting[[]int64]
	mtp            flags.Setting[string]
	kv             load.KVFlags
	drafter        string
	json           bool
}

// Inspect is the command that describes a checkpoint.
func Inspect() *cobra.Command {
	f := &inspection{OffloadFlags: load.NewOffloadFlags(), NodeFlags: load.NewNodeFlags(), kv: load.NewKVFlags(), context: flags.Whole(1, math.MaxInt32), batch: flags.Whole(1, 1<<20), gpuMemory: flags.List(flags.ByteCount()), mtp: flags.Choice("auto", "off")}
	cmd := &cobra.Command{
		Use:   "inspect MODEL",
		Short: "Describe a checkpoint from its headers",
		Long: `Inspect describes a checkpoint: sizes, layers, parameters, bits by part, memory, its
multi-token-prediction head, tokenizer and chat template, and defects of its files. It reads only
headers, JSON files and a few norms, so it is fast for every model size. To load and measure a model,
use foretoken doctor.

Of a drafter it describes the kind, the models it fits, the layers it reads, block size, mask token
and memory. With its drafter, the model is described with the memory of both.

With a GPU it shows the placement on GPU and CPU, as set by --gpu-layers and --cpu-experts; with
several also that on all of them. --gpu-memory plans for GPUs that this machine does not have. With
--node it measures this machine and the nodes, and shows the placement by serve for this --context.

MODEL is a value of --model of other commands. A damaged folder is described as far as possible.

Exit status: 0 success, 1 the model cannot be loaded, 2 invalid command line.`,
		Example: `  foretoken inspect tiny
  foretoken inspect ~/models/Qwen3.5-4B --context 32768 --batch 4 --kv-bits 4
  foretoken inspect ~/models/Qwen3.5-27B --gpu-memory 16GB --gpu-layers 40
  foretoken inspect ~/models/GLM-4.6 --gpu-memory 140GB,140GB
  foretoken inspect ~/models/Qwen3.5-27B --node desk:7070#gq3tkmzq4yd5c2fwx7bnhs6r2j4vae5u
  foretoken inspect ~/models/GLM-4.7-Flash --context 8192 --mtp off
  foretoken inspect z-lab/Qwen3.5-4B-DFlash
  foretoken inspect Qwen/Qwen3.5-4B --drafter z-lab/Qwen3.5-4B-DFlash
  foretoken inspect ~/models/Qwen3.5-4B --json`,
		Args:              oneModel,
		ValidArgsFunction: completeOneModel,
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	memory := flags.NewGroup("Memory")
	memory.Flags().Var(&f.context, "context", "context length of the memory estimate in tokens (default: that of the model, at most 4096)")
	memory.Flags().Var(&f.batch, "batch", "batch size of the memory estimate in sequences (default 1)")
	f.kv.Add(memory, "16")
	memory.Flags().Var(&f.gpuMemory, "gpu-memory", "free memory of a GPU to plan for, or of several with commas between (default: the GPUs of this machine)")
	memory.Flags().Var(&f.mtp, "mtp", "off: the memory estimate is for --mtp=off, which does not load the head (default auto)")
	memory.Flags().StringVar(&f.drafter, "drafter", "", "drafter of the memory estimate: a `DIR`, a GGUF file or a pulled drafter (ORG/NAME), or off (default: the drafter beside the model)")
	f.AddOffload(memory)
	f.AddNodes(memory)
	output := flags.NewGroup("Output")
	output.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	flags.AddGroups(cmd, memory, output)
	load.CompleteDrafter(cmd)
	load.CompleteNodes(cmd)
	load.CompleteKV(cmd)
	flags.Must(cmd.RegisterFlagCompletionFunc("mtp", cobra.FixedCompletions([]cobra.Completion{"auto", "off"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// errUnloadable ends a command that has printed the faults of a model.
var errUnloadable = errors.New("the model cannot be loaded")

func (f *inspection) run(cmd *cobra.Command, name string) (err error) {
	nodes, err := f.Nodes(cmd.Context(), load.Nodes{})
	if err != nil {
		return err
	}
	var devices []backend.Info
	if len(nodes) == 0 {
		devices, err = f.devices()
	} else if f.gpuMemory.Given {
		err = flags.Usagef("--gpu-memory and --node cannot be combined: with nodes, the devices of this machine are measured")
	}
	if err != nil {
		return err
	}
	c, err := examineCheckpoint(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	drafter, err := load.Drafter(name, f.drafter)
	if err != nil {
		return err
	}
	if drafter != nil {
		defer func() { err = errors.Join(err, drafter.Close()) }()
	}
	facts := inspect(c, doctor.InspectOptions{Drafter: drafter, Name: name, Context: f.context.Or(0), Batch: f.batch.Or(1), KVBits: f.kv.Options(), Devices: devices, Offload: offload.Want(f.Offload()), NoHead: f.mtp.Value == "off"})
	if m := facts.Model; len(nodes) > 0 && m != nil && (m.Drafter == nil || facts.Drafter != "") { // no drafter
		n := load.Threads()
		load.AddSlot(n)
		place, err := offload.PreviewBeside(m, offload.Devices{How: backend.Options{Threads: n}, More: nodes}, offload.Want(f.Offload()), offload.Options{
			Context: facts.Memory.Context, KVMemory: facts.Memory.Total - facts.Memory.Weights, KVBits: f.kv.Options(), NoHead: f.mtp.Value == "off" && m.Drafter == nil,
		})
		if err != nil {
			return err
		}
		place.Device += "," + strings.Join(f.Names(), ",")
		facts.Devices = append(facts.Devices, place)
	}
	out := console.New(cmd)
	if f.json {
		err = console.WriteJSON(out, facts)
	} else {
		err = out.Write(facts.Table())
	}
	if err == nil && !facts.Loadable {
		err = errUnloadable
	}
	return err
}

// devices are those to plan for.
func (f *inspection) devices() ([]backend.Info, error) {
	devices := backend.List()
	if f.gpuMemory.Given {
		devices = slices.DeleteFunc(devices, func(d backend.Info) bool { return d.Name != backend.HostName() })
		for i, free := range f.gpuMemory.Value {
			name := "gpu"
			if len(f.gpuMemory.Value) > 1 {
				name = fmt.Sprintf("gpu:%d", i)
			}
			devices = append(devices, backend.Info{Name: name, Memory: free, Free: free})
		}
		return devices, nil
	}
	other := slices.ContainsFunc(devices, func(d backend.Info) bool { return d.Name != backend.HostName() && d.Missing == "" })
	if !other && (f.Layers.Given || f.Experts) {
		return nil, flags.Usagef("--gpu-layers and --cpu-experts: this machine has no GPU; to plan for one, set its memory, such as --gpu-memory 24GB")
	}
	return devices, nil
}

// inspect describes the files of a checkpoint.
func inspect(c *checkpoint.Checkpoint, o doctor.InspectOptions) *doctor.Facts {
	o.Template = func(c *checkpoint.Checkpoint) (source, tools string, err error) {
		t, err := c.Templates()
		return t.Plain, t.Tools, err
	}
	return doctor.Inspect(c, o)
}

// examineCheckpoint opens a model like load.Checkpoint, and the readable part of a folder that it
// refuses.
func examineCheckpoint(name string) (*checkpoint.Checkpoint, error) {
	c, err := load.Checkpoint(name)
	if err == nil || name == load.Embedded {
		return c, err
	}
	path, unknown := load.Resolve(name)
	if unknown != nil {
		return nil, err
	}
	if info, failed := os.Stat(path); failed != nil || !info.IsDir() {
		return nil, err
	}
	return checkpoint.Examine(path)
}

// oneModel demands the name of a model and nothing else.
func oneModel(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return flags.Usagef("%s needs a model: a checkpoint folder, a GGUF file, a model of the cache, or %s for the one inside the program", cmd.CommandPath(), load.Embedded)
	case 1:
		return nil
	}
	return flags.Usagef("%s takes one model, but there is also %q", cmd.CommandPath(), args[1])
}

// completeOneModel completes the values of --model of other commands.
func completeOneModel(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return load.CompleteName(typed)
}
