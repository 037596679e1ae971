package cpu

import (
	"fmt"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
)

// The kernels do not import package backend: if their constants differ, this does not compile.
var (
	_ [backend.RowBlock]struct{}   = [kernel.Tile]struct{}{}
	_ [backend.PageTokens]struct{} = [kernel.PageTokens]struct{}{}
)

// isas lists the instruction sets this build has kernels for, the best first.
func isas() []string {
	var names []string
	for _, set := range kernel.Sets() {
		names = append(names, set.Name)
	}
	return names
}

// probe describes the processor.
func probe() []backend.Info {
	i := backend.Info{Compute: []backend.Compute{backend.Int8, backend.Float32}}
	i.Threads, i.Reason = usualThreads()
	i.Detail = processorName()
	i.Memory, i.Free = hostMemory()
	for _, set := range kernel.Sets() {
		i.ISAs = append(i.ISAs, backend.ISA{Name: set.Name, Missing: set.Missing})
	}
	return []backend.Info{i}
}

// findISA is the kernels of the instruction set of that name, or the best that runs here if
// name is empty.
func findISA(name string) (*kernel.Set, error) {
	for _, set := range kernel.Sets() {
		switch {
		case name == "" && set.Missing == "":
			return &set, nil
		case name != "" && name == set.Name:
			if set.Missing != "" {
				return nil, fmt.Errorf("cpu: instruction set %s: %s", name, set.Missing)
			}
			return &set, nil
		}
	}
	return nil, fmt.Errorf("cpu: no instruction set %q, want one of %s", name, strings.Join(isas(), ", "))
}
