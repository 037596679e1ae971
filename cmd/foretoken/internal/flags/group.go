package flags

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Must is for calls that go wrong only if a flag is not defined.
func Must(err error) {
	if err != nil {
		panic("foretoken: " + err.Error())
	}
}

// Group is a part of a command's flags with a heading.
type Group struct {
	title string
	// The command is never run: it is a set of flags, for which cobra has no other type.
	*cobra.Command
}

// NewGroup returns an empty group.
func NewGroup(title string) Group { return Group{title, &cobra.Command{}} }

// AddGroups adds the groups' flags to the command, and shows them as groups in its help.
func AddGroups(cmd *cobra.Command, groups ...Group) {
	for _, g := range groups {
		cmd.Flags().AddFlagSet(g.Flags())
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
			fmt.Fprintf(&b, "\n%s:\n%s", g.title, g.Flags().FlagUsagesWrapped(width))
		}
		_, err := fmt.Fprint(cmd.OutOrStdout(), b.String())
		return err
	})
}
