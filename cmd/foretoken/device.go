package main

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/backend"
)

// deviceFlags say what to compute on.
type deviceFlags struct {
	device  flags.Setting[string]
	threads flags.Setting[int]
	isa     flags.Setting[string]
}

func newDeviceFlags() deviceFlags {
	device := flags.Choice(backend.Names()...)
	device.Check = backend.Known // whether this machine has it shows when it is opened
	return deviceFlags{device: device, threads: flags.Whole(1, 1024), isa: flags.Choice(backend.ISAs()...)}
}

// offloadFlags say what of a model lies on the device.
type offloadFlags struct {
	layers  flags.Setting[int]
	experts bool
}

func newOffloadFlags() offloadFlags {
	return offloadFlags{layers: flags.Setting[int]{Kind: "auto|N", Parse: parseLayers, Check: func(int) error { return nil }}}
}

// parseLayers reads how many layers lie on the device; 0 is none of them.
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

// addOffload adds the flags to a group.
func (f *offloadFlags) addOffload(g flags.Group) {
	fs := g.Flags()
	fs.Var(&f.layers, "gpu-layers", "number of layers on the GPU, counted from the last, with output and head; the CPU computes the rest with the same bits (default auto: fastest placement that fits)")
	fs.BoolVar(&f.experts, "cpu-experts", false, "keep the experts of all layers on the CPU")
}

// offload is what was asked for.
func (f *offloadFlags) offload() foretoken.Offload {
	return foretoken.Offload{Layers: f.layers.Value, CPUExperts: f.experts}
}

// addDevice adds the flags to a group.
func (f *deviceFlags) addDevice(g flags.Group) {
	fs := g.Flags()
	fs.Var(&f.device, "device", "compute device; 'foretoken devices' lists them (default auto: the best)")
	fs.Var(&f.threads, "threads", "compute threads (default: one per core)")
	fs.Var(&f.isa, "isa", "instruction set of the CPU; all give the same bits (default: the fastest available)")
}

// completeDevice adds what a shell can complete.
func completeDevice(cmd *cobra.Command) {
	for name, words := range map[string][]cobra.Completion{"device": backend.Names(), "isa": backend.ISAs()} {
		flags.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
	}
}

// completeOffload likewise.
func completeOffload(cmd *cobra.Command) {
	flags.Must(cmd.RegisterFlagCompletionFunc("gpu-layers", cobra.FixedCompletions([]cobra.Completion{"auto"}, cobra.ShellCompDirectiveNoFileComp)))
}

// runnable lists the instruction sets of the device that this machine can run.
func (f *deviceFlags) runnable() []string {
	for _, d := range backend.List() {
		if d.Name == f.device.Value || d.Default && f.device.Or(backend.Auto) == backend.Auto {
			return d.Runnable()
		}
	}
	return nil
}

// openDevice opens the device, with a slot of Go's scheduler for the terminal and timers.
func (f *deviceFlags) openDevice() (backend.Backend, error) {
	n := f.threads.Or(processors)
	addSlot(n)
	b, err := backend.Open(f.device.Value, backend.Options{Threads: n, ISA: f.isa.Value})
	return b, explain(err)
}
