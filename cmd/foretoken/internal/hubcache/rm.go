package hubcache

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/hub"
)

// Remove is the command that deletes a model of the cache.
func Remove() *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:   "rm [flags] ORG/NAME[@REVISION]",
		Short: "Remove a model from the Hugging Face cache",
		Long: `Rm removes a model from the Hugging Face cache, including models fetched by other programs. With a
revision it removes only that revision and the files that no other revision needs. On a terminal it
asks for confirmation.`,
		Example:           "  foretoken rm Qwen/Qwen3.5-4B\n  foretoken rm Qwen/Qwen3.5-4B@refs/pr/1 --yes",
		Args:              oneRepository,
		ValidArgsFunction: completeCached,
		RunE:              func(cmd *cobra.Command, args []string) error { return removeModel(console.New(cmd), args[0], yes) },
	}
	g := flags.NewGroup("Options")
	g.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	flags.AddGroups(cmd, g)
	return cmd
}

// completeCached lets a shell complete the models in the cache.
func completeCached(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return load.CachedNames(typed), cobra.ShellCompDirectiveNoFileComp
}

// removeModel removes a model, or one revision of it, from the cache.
func removeModel(c *console.Console, name string, yes bool) error {
	if _, _, err := hub.ParseName(name); err != nil {
		return flags.Usage(err)
	}
	cache, err := load.HubCache()
	if err != nil {
		return err
	}
	repo, revision, err := cache.Lookup(name)
	if err != nil {
		return err
	}
	m, err := cache.Model(repo)
	if err != nil {
		return err
	}
	what, remove := fmt.Sprintf("%s, %s", repo, console.ByteText(m.Size)), func() error { return cache.RemoveAll(repo) }
	if revision != "" {
		s, err := m.Snapshot(revision)
		if err != nil {
			return err
		}
		what, remove = fmt.Sprintf("revision %s of %s", s.Commit[:12], repo), func() error { return cache.Remove(s) }
	}
	if !yes {
		if err := confirm(c, fmt.Sprintf("Remove %s, from %s?", what, string(cache))); err != nil {
			return err
		}
	}
	if err := remove(); err != nil {
		return err
	}
	freed := m.Size
	if left, err := cache.Model(repo); err == nil {
		freed -= left.Size
	} else if !errors.Is(err, hub.ErrNotCached) {
		return err
	}
	return c.Write(fmt.Sprintf("removed %s: %s freed\n", what, console.ByteText(freed)))
}

// confirm asks a question that only yes answers.
func confirm(c *console.Console, question string) error {
	if !c.InTerminal || !c.ErrTerminal {
		return flags.Usagef("there is no terminal for the question: add --yes to remove without it")
	}
	console.Tell(c.Err, question+" [y/N] ")
	line, err := bufio.NewReader(c.In).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err == nil && (answer == "y" || answer == "yes") {
		return nil
	}
	return errors.New("nothing was removed")
}
