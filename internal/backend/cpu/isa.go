package cpu

import (
	"fmt"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
)

// The kernels know nothing of package backend: these are its numbers, or this does not compile.
var (
	_ [backend.RowBlock]struct{}   = [kernel.Tile]struct{}{}
	_ [backend.PageTokens]struct{} = [kernel.PageTokens]struct{}{}
)

// ISAs lists the instruction sets this build has kernels for, the best first, and whether
// this machine can run each.
func ISAs() (names []string, runs []bool) {
	for _, set := range kernel.Sets() {
		names, runs = append(names, set.Name), append(runs, set.Missing == "")
	}
	return names, runs
}

// findISA is the kernels of the instruction set of that name, or the best that runs here if
// name is empty.
func findISA(name string) (*kernel.Set, error) {
	var known []string
	for _, set := range kernel.Sets() {
		known = append(known, set.Name)
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
	return nil, fmt.Errorf("cpu: no instruction set %q, want one of %s", name, strings.Join(known, ", "))
}
