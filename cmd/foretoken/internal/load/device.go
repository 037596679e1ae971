package load

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/backend"
)

// DeviceFlags select the device.
type DeviceFlags struct {
	Device  flags.Setting[string]
	Threads flags.Setting[int]
	ISA     flags.Setting[string]
}

func NewDeviceFlags() DeviceFlags {
	device := flags.Choice(backend.Names()...)
	device.Check = backend.Known // whether this machine has it shows when it is opened
	return DeviceFlags{Device: device, Threads: flags.Whole(1, 1024), ISA: flags.Choice(backend.ISAs()...)}
}

// OffloadFlags select the part of a model on the device.
type OffloadFlags struct {
	Layers  flags.Setting[int]
	Experts bool
}

func NewOffloadFlags() OffloadFlags {
	return OffloadFlags{Layers: flags.Setting[int]{Kind: "auto|N", Parse: parseLayers, Check: func(int) error { return nil }}}
}

// parseLayers reads the number of layers on the device; 0 is none.
func parseLayers(text string) (int, error) {
	if text == "auto" {
		return foretoken.LayersAuto, nil
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < 0:
		return 0, errors.New("want auto or a whole number, 0 or more")
	case n == 0:
		return foretoken.LayersOff, nil
	}
	return n, nil
}

// AddOffload adds the flags to a group.
func (f *OffloadFlags) AddOffload(g flags.Group) {
	fs := g.Flags()
	fs.Var(&f.Layers, "gpu-layers", "number of layers on the GPU, counted from the last, with output and head; the CPU computes the rest with the same bits; for one GPU only (default auto: fastest placement that fits)")
	fs.BoolVar(&f.Experts, "cpu-experts", false, "keep the experts of all layers on the CPU")
}

// Offload is the requested placement.
func (f *OffloadFlags) Offload() foretoken.Offload {
	return foretoken.Offload{Layers: f.Layers.Value, CPUExperts: f.Experts}
}

// AddDevice adds the flags to a group.
func (f *DeviceFlags) AddDevice(g flags.Group) {
	fs := g.Flags()
	fs.Var(&f.Device, "device", "compute device, or several that share the layers of a model, such as cuda:0,cuda:1; 'foretoken devices' lists them (default auto: the best, and other GPUs if the model is too large for one)")
	fs.Var(&f.Threads, "threads", "compute threads (default: one per performance core)")
	fs.Var(&f.ISA, "isa", "instruction set of the CPU; all give the same bits (default: the fastest available)")
}

// CompleteDevice adds shell completion.
func CompleteDevice(cmd *cobra.Command) {
	for name, words := range map[string][]cobra.Completion{"device": backend.Names(), "isa": backend.ISAs()} {
		flags.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
	}
}

// CompleteOffload adds shell completion.
func CompleteOffload(cmd *cobra.Command) {
	flags.Must(cmd.RegisterFlagCompletionFunc("gpu-layers", cobra.FixedCompletions([]cobra.Completion{"auto"}, cobra.ShellCompDirectiveNoFileComp)))
}

// Runnable lists the instruction sets of the device that this machine can run.
func (f *DeviceFlags) Runnable() []string {
	for _, d := range backend.List() {
		if d.Name == f.Device.Value || d.Default && f.Device.Or(backend.Auto) == backend.Auto {
			return d.Runnable()
		}
	}
	return nil
}

// OpenDevice opens the device, with a slot of Go's scheduler for the terminal and timers.
func (f *DeviceFlags) OpenDevice() (backend.Backend, error) {
	n := f.Threads.Or(Threads())
	AddSlot(n)
	b, err := backend.Open(f.Device.Value, backend.Options{Threads: n, ISA: f.ISA.Value})
	return b, Explain(err)
}
