package load

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/rescue"
)

// LogFlags say how a process that runs for long logs.
type LogFlags struct{ format, level flags.Setting[string] }

// Words of the flags.
var (
	logFormats = []string{"text", "json"}
	logLevels  = []string{"debug", "info", "warn", "error"}
)

func NewLogFlags() LogFlags {
	return LogFlags{flags.Choice(logFormats...), flags.Choice(logLevels...)}
}

// Add adds the flags to a group.
func (f *LogFlags) Add(g flags.Group) {
	fs := g.Flags()
	fs.Var(&f.format, "log-format", "format of the log on standard error (default text)")
	fs.Var(&f.level, "log-level", "minimum level of the log (default info)")
}

// Complete adds shell completion.
func (f *LogFlags) Complete(cmd *cobra.Command) {
	for name, words := range map[string][]string{"log-format": logFormats, "log-level": logLevels} {
		flags.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
	}
}

// Logger is the log.
func (f *LogFlags) Logger(w io.Writer) (*slog.Logger, error) {
	o := slog.HandlerOptions{ReplaceAttr: rescue.Attr}
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level.Or("info"))); err != nil {
		return nil, err
	}
	o.Level = level
	if f.format.Value == "json" {
		return slog.New(slog.NewJSONHandler(w, &o)), nil
	}
	return slog.New(slog.NewTextHandler(w, &o)), nil
}
