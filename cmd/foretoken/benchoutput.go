package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/bench"
	"github.com/foretoken/foretoken/internal/plot"
	"github.com/foretoken/foretoken/internal/rescue"
)

// benchReport is what a benchmark has found, in the forms it can be had in beside JSON.
type benchReport interface {
	Text(plot.Style) string
	Page() string
	Plots() []bench.Plot
}

// benchOutput says in which forms a report is wanted.
type benchOutput struct {
	json        bool
	html, plots string
}

func (o *benchOutput) group() flagGroup {
	g := newFlagGroup("Output")
	fs := g.flags.Flags()
	fs.SortFlags = false
	fs.BoolVar(&o.json, "json", false, "print the complete report as one JSON object")
	fs.StringVar(&o.html, "html", "", "write a self-contained page with tables and plots to `FILE`")
	fs.StringVar(&o.plots, "plots", "", "write the plots as SVG files into `DIR`")
	return g
}

func (o *benchOutput) complete(cmd *cobra.Command) {
	mustFlag(cmd.MarkFlagFilename("html", "html"))
	mustFlag(cmd.MarkFlagDirname("plots"))
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

// write gives the report out in all forms.
func (o *benchOutput) write(c *console, r benchReport) error {
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
		return writeJSON(c, r)
	}
	return c.write(r.Text(c.plotStyle()))
}

// step says on standard error what comes next.
func (c *console) step(what string) { c.remark(what + " …") }

// openBench opens a model for measuring. Nothing else is to be running in the process.
func openBench(ctx context.Context, c *console, f *modelFlags, o foretoken.Options) (*session, error) {
	path, err := resolveModel(f.model)
	if err != nil {
		return nil, err
	}
	log, bar := newNotes(f.verbose), newProgress(c, f.model)
	o.Log, o.Progress = slog.New(log), bar.report
	addSlot(o.Threads)
	m, err := unlessInterrupted(ctx, func() (*foretoken.Model, error) { return foretoken.Open(path, o) })
	bar.end()
	log.show(c.err)
	if err != nil {
		return nil, explain(err)
	}
	return &session{m, log}, nil
}

// unlessInterrupted does work. When ctx ends first it returns errInterrupted at once, and
// leaves the work to the end of the process.
func unlessInterrupted[T any](ctx context.Context, work func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.err = rescue.Do(func() (err error) {
			r.value, err = work()
			return err
		})
		done <- r
	}()
	select {
	case <-ctx.Done():
		var none T
		return none, errInterrupted
	case r := <-done:
		if errors.Is(r.err, context.Canceled) {
			r.err = errInterrupted
		}
		return r.value, r.err
	}
}
