package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/model"
)

// The page of commands has every command, every flag of common commands, and no nonexistent
// flag.
func TestCommandsPageIsComplete(t *testing.T) {
	data := filetest.Read(t, "../../docs/commands.md")
	page := strings.ReplaceAll(string(data), `\|`, " ")
	has := func(name string) bool { return regexp.MustCompile("`" + name + "[` ]").MatchString(page) }
	shown := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)`) // by help, which leaves out hidden flags
	known := map[string]bool{"help": true}
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "foretoken ")
		for _, flag := range shown.FindAllStringSubmatch(c.Flags().FlagUsages(), -1) {
			known[flag[1]] = true
			if (path == "run" || path == "generate" || path == "serve") && !has("--"+flag[1]) {
				t.Errorf("docs/commands.md has no --%s, a flag of %s", flag[1], path)
			}
		}
		for _, sub := range c.Commands() {
			name := sub.Name()
			if c.HasParent() {
				name = path + " [^`]*" + name // several may be named at once
			}
			if !sub.Hidden && !has(name) {
				t.Errorf("docs/commands.md has no %s", sub.CommandPath())
			}
			look(sub)
		}
	}
	look(newRootCommand())
	for _, flag := range regexp.MustCompile("--([a-z][a-z0-9-]+)").FindAllStringSubmatch(page, -1) {
		if !known[flag[1]] {
			t.Errorf("docs/commands.md has --%s, which no command has", flag[1])
		}
	}
}

func TestHelpNamesEveryFamily(t *testing.T) {
	help := strings.ToLower(runIn(t, nil, "--help").out)
	for _, kind := range model.Types() {
		if name := regexp.MustCompile("^[a-z]+").FindString(kind); !strings.Contains(help, name) {
			t.Errorf("foretoken --help does not say that models of type %s are run:\n%s", kind, help)
		}
	}
}
