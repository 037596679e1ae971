package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "foretoken %s\n", version())
			return err
		},
	}
}

// version describes the build: version, commit where it is known, compiler and platform.
func version() string {
	name, revision, modified := "unknown", "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			name = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = ", commit " + s.Value[:min(len(s.Value), 12)]
			case s.Key == "vcs.modified" && s.Value == "true":
				modified = " with changes"
			}
		}
	}
	return fmt.Sprintf("%s (%s, %s/%s%s%s)", name, runtime.Version(), runtime.GOOS, runtime.GOARCH, revision, modified)
}
