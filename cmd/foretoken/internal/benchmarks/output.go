package benchmarks

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/bench"
	"github.com/foretoken/foretoken/internal/plot"
)

// benchReport is the result of a benchmark, in its formats besides JSON.
type benchReport interface {
	Text(plot.Style) string
	Page() string
	Plots() []bench.Plot
}

// benchOutput selects the formats of a report.
type benchOutput struct {
	json        bool
	html, plots string
}

func (o *benchOutput) group() flags.Group {
	g := flags.NewGroup("Output")
	fs := g.Flags()
	fs.SortFlags = false
	fs.BoolVar(&o.json, "json", false, "print the complete report as one JSON object")
	fs.StringVar(&o.html, "html", "", "write a self-contained page with tables and plots to `FILE`")
	fs.StringVar(&o.plots, "plots", "", "write the plots as SVG files into `DIR`")
	return g
}

func (o *benchOutput) complete(cmd *cobra.Command) {
	flags.Must(cmd.MarkFlagFilename("html", "html"))
	flags.Must(cmd.MarkFlagDirname("plots"))
}

// prepare finds out whether the report can be written, better before than after measuring.
func (o *benchOutput) prepare() error {
	if o.plots != "" {
		if err := os.MkdirAll(o.plots, 0o755); err != nil {
			return fmt.Errorf("--plots: %w", err)
		}
	}
	if o.html == "" {
		return nil
	}
	page, err := os.OpenFile(o.html, os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		err = page.Close()
	}
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}

// write writes the report in all selected formats.
func (o *benchOutput) write(c *console.Console, r benchReport) error {
	if o.html != "" {
		if err := os.WriteFile(o.html, []byte(r.Page()), 0o644); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	if o.plots != "" {
		for _, p := range r.Plots() {
			if err := os.WriteFile(filepath.Join(o.plots, p.Name+".svg"), []byte(p.File()), 0o644); err != nil {
				return fmt.Errorf("--plots: %w", err)
			}
		}
	}
	if o.json {
		return console.WriteJSON(c, r)
	}
	return c.Write(r.Text(c.PlotStyle()))
}
