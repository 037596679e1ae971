package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Set by the linker in released builds (make dist, the container), which have no repository
// to ask; empty otherwise.
var stampedVersion, stampedCommit string

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, commit, Go version and platform",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "foretoken %s\n", version())
			return err
		},
	}
}

// version describes the build: version, commit, whether the tree had changes, compiler and
// platform.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return describeBuild(stampedVersion, stampedCommit, info)
}

// describeBuild writes a version and a commit, which info stands in for where they are empty.
func describeBuild(name, commit string, info *debug.BuildInfo) string {
	if name == "" {
		name = info.Main.Version
	}
	if name == "" {
		name = "unknown"
	}
	dirty := strings.HasSuffix(name, "+dirty")
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && commit == "":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = true
		}
	}
	parts := []string{name}
	if commit != "" {
		parts = append(parts, "commit "+commit[:min(len(commit), 12)])
	}
	if dirty {
		parts = append(parts, "dirty")
	}
	return strings.Join(append(parts, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH), ", ")
}
