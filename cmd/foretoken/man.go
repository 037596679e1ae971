package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
)

func newManCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:    "man --out DIR",
		Short:  "Write the manual pages",
		Long:   `Man writes the manual pages of the program and its commands.`,
		Hidden: true, // for packagers
		Example: `  foretoken man --out /usr/local/share/man/man1
  man foretoken-serve`,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return flags.Usagef("--out is missing: want the folder for the pages")
			}
			return writeManual(cmd.Root(), out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "output `DIR`; created if missing")
	flags.Must(cmd.MarkFlagDirname("out"))
	return cmd
}

// writeManual writes the pages. Their month is this one, or that of SOURCE_DATE_EPOCH, which
// builders of packages set.
func writeManual(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: "1", Source: "foretoken", Manual: "foretoken"}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return fmt.Errorf("--out %s: %w", dir, err)
	}
	return nil
}
