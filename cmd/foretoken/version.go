package main

import (
	_ "embed"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
)

// versionText is the version of the program. It is the only place: make dist reads it too. It ends in -dev
// between releases.
//
//go:embed version.txt
var versionText string

// stampedCommit is set by the linker in builds without a repository (make dist, the container). It ends
// in +dirty if the tree had changes.
var stampedCommit string

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, commit, Go version and platform",
		Args:  flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "foretoken %s\n", version())
			return err
		},
	}
}

// version describes the build: version, commit, uncommitted changes, compiler and platform.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return describeBuild(stampedCommit, info)
}

// describeBuild takes the commit from info if it is empty.
func describeBuild(commit string, info *debug.BuildInfo) string {
	commit, dirty := strings.CutSuffix(commit, "+dirty")
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && commit == "":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = true
		}
	}
	parts := []string{strings.TrimSpace(versionText)}
	if commit != "" {
		parts = append(parts, "commit "+commit[:min(len(commit), 12)])
	}
	if dirty {
		parts = append(parts, "dirty")
	}
	return strings.Join(append(parts, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH), ", ")
}
