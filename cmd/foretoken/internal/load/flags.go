// Package load opens the model that a command line names: in a folder, in a file, in the cache of the hub or
// inside the program. It has the flags that say which model, on which device, and how it drafts.
package load

import (
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
)

// Embedded is the name of the embedded model.
const Embedded = foretoken.Tiny

// Flags say which model to open, and how.
type Flags struct {
	Model    string
	compute  flags.Setting[string]
	quantize flags.Setting[string]
	KV       KVFlags
	Vision   VisionFlags
	DeviceFlags
	OffloadFlags
	NodeFlags
	verify  flags.Setting[int]
	context flags.Setting[int]
	Verbose bool
	Talks   bool // what is opened needs a chat template
	Draft   *draftFlags
}

func NewFlags() *Flags {
	return &Flags{
		Model:       Embedded,
		compute:     flags.Choice("int8", "float32"),
		quantize:    flags.Choice("4", "5", "6", "8"),
		KV:          NewKVFlags(),
		Vision:      newVisionFlags(),
		DeviceFlags: NewDeviceFlags(), OffloadFlags: NewOffloadFlags(), NodeFlags: NewNodeFlags(),
		verify:  flags.Whole(1, math.MaxInt32),
		context: flags.Whole(2, math.MaxInt32),
		Draft:   newDraftFlags(),
	}
}

func (f *Flags) Group() flags.Group {
	g := flags.NewGroup("Model")
	fs := g.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.Model, "model", f.Model, "checkpoint `DIR`, GGUF file, pulled model (ORG/NAME), or "+Embedded+" for the embedded model")
	f.AddComputing(g)
	f.KV.Add(g, KVDefault)
	fs.BoolVar(&f.Verbose, "verbose", false, "report loading, tokens, speed and acceptance on standard error")
	return g
}

// AddComputing adds the flags that say how a model is computed.
func (f *Flags) AddComputing(g flags.Group) {
	fs := g.Flags()
	fs.Var(&f.compute, "compute", "arithmetic for quantized weights (default int8)")
	fs.Var(&f.quantize, "quantize", "quantize the weights to this number of bits on load (default: as in the files)")
	f.AddDevice(g)
	f.AddOffload(g)
	fs.Var(&f.verify, "verify-device", "the CPU computes one of `N` passes of the device again, and the command ends with an error if a logit differs; needs memory for the weights on the CPU as well (default: never)")
	f.AddNodes(g)
	fs.Var(&f.context, "context", fmt.Sprintf("context length: maximum tokens of prompt and answer (default: that of the model, at most %d)", foretoken.DefaultContext))
}

// Complete adds shell completion.
func Complete(cmd *cobra.Command) {
	CompletePlacement(cmd)
	words := map[string][]cobra.Completion{"compute": {"int8", "float32"}, "quantize": {"4", "5", "6", "8"}}
	for name, list := range words {
		flags.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)))
	}
	CompleteKV(cmd)
	flags.Must(cmd.RegisterFlagCompletionFunc("model", func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return CompleteName(typed)
	}))
	completeDrafting(cmd)
}

// KVFlags say how a KV cache is kept.
type KVFlags struct{ bits flags.Setting[string] }

// kvBits are the values of --kv-bits.
var kvBits = []string{"4", "8", "16", "32"}

// KVDefault is the default of --kv-bits where --compute is a flag as well.
const KVDefault = "16; 32 with --compute float32"

func NewKVFlags() KVFlags { return KVFlags{flags.Choice(kvBits...)} }

// Add adds the flag to a group. Otherwise is its default, in words.
func (f *KVFlags) Add(g flags.Group, otherwise string) {
	g.Flags().Var(&f.bits, "kv-bits", fmt.Sprintf("bits per number in the KV cache (default %s)", otherwise))
}

// Options is the requested width, 0 if not given.
func (f *KVFlags) Options() int {
	n, _ := strconv.Atoi(f.bits.Or("0")) // one of a few that are numbers
	return n
}

// CompleteKV adds shell completion.
func CompleteKV(cmd *cobra.Command) {
	flags.Must(cmd.RegisterFlagCompletionFunc("kv-bits", cobra.FixedCompletions(kvBits, cobra.ShellCompDirectiveNoFileComp)))
}
