package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/backend"
)

// deviceReport is the output of devices for a device. Fields are only ever added.
type deviceReport struct {
	Name        string      `json:"name"`
	Node        string      `json:"node,omitempty"` // the device of a node, whose address is the name
	Available   bool        `json:"available"`
	Default     bool        `json:"default"`           // selected by --device auto
	Missing     string      `json:"missing,omitempty"` // why it is not available
	Detail      string      `json:"detail,omitempty"`  // more about it, such as its proof
	MemoryBytes int64       `json:"memory_bytes"`      // 0: not known
	FreeBytes   int64       `json:"free_bytes"`
	Threads     int         `json:"threads"` // default of --threads
	Reason      string      `json:"threads_reason,omitempty"`
	Compute     []string    `json:"compute"` // values of --compute
	ISAs        []isaReport `json:"isas"`    // the best first
}

// isaReport is an instruction set of a device.
type isaReport struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	Default   bool   `json:"default"`           // used without --isa
	Missing   string `json:"missing,omitempty"` // why it is not available
}

func newDevicesCommand() *cobra.Command {
	asJSON, nodes := false, load.NewNodeFlags()
	cmd := &cobra.Command{
		Use:   "devices [flags]",
		Short: "List the compute devices and their capabilities",
		Long: `Devices lists the values of --device: each device of this build with its memory, threads, arithmetic
and instruction sets. It marks the default and says why unavailable devices cannot be used. With
--node it also connects to nodes, and lists the device of each with the memory that it grants.

Exit status: 0 success, 1 a node cannot be used, 2 invalid command line.`,
		Example: "  foretoken devices\n  foretoken devices --json\n  foretoken devices --node 127.0.0.1:7070",
		Args:    flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := describeDevices(backend.List())
			c := console.New(cmd)
			open, err := nodes.Nodes(cmd.Context(), load.Nodes{})
			if err != nil {
				return err
			}
			var failed error
			for i, f := range open {
				r := deviceReport{Name: nodes.Names()[i], Compute: []string{}, ISAs: []isaReport{}}
				b, err := f()
				if err == nil {
					r.Node, r.Available, r.MemoryBytes, r.FreeBytes = b.Name(), true, b.FreeMemory(), b.FreeMemory()
					err = b.Close()
				} else {
					r.Missing = strings.TrimPrefix(err.Error(), "node "+r.Name+": ")
				}
				list, failed = append(list, r), errors.Join(failed, err)
			}
			if asJSON {
				err = console.WriteJSON(c, list)
			} else {
				err = c.Write(console.Printable(deviceTable(list)))
			}
			return errors.Join(err, failed)
		},
	}
	g := flags.NewGroup("Output")
	g.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	n := flags.NewGroup("Nodes")
	nodes.AddNodes(n)
	flags.AddGroups(cmd, g, n)
	load.CompleteNodes(cmd)
	return cmd
}

func describeDevices(list []backend.Info) []deviceReport {
	reports := make([]deviceReport, 0, len(list))
	for _, d := range list {
		r := deviceReport{
			Name: d.Name, Available: d.Missing == "", Default: d.Default, Missing: d.Missing, Detail: d.Detail,
			MemoryBytes: d.Memory, FreeBytes: d.Free, Threads: d.Threads, Reason: d.Reason, Compute: []string{}, ISAs: []isaReport{},
		}
		for _, c := range d.Compute {
			r.Compute = append(r.Compute, c.String())
		}
		chosen := false
		for _, set := range d.ISAs {
			x := isaReport{Name: set.Name, Available: set.Missing == "", Missing: set.Missing}
			x.Default = x.Available && !chosen
			chosen = chosen || x.Default
			r.ISAs = append(r.ISAs, x)
		}
		reports = append(reports, r)
	}
	return reports
}

// deviceTable is the devices for people, a paragraph each.
func deviceTable(list []deviceReport) string {
	var b strings.Builder
	for i, d := range list {
		if i > 0 {
			b.WriteString("\n")
		}
		switch {
		case !d.Available:
			fmt.Fprintf(&b, "%s: not available: %s\n", d.Name, d.Missing)
			continue
		case d.Node != "":
			fmt.Fprintf(&b, "node %s: %s\n  memory  %s for a leader\n", d.Name, d.Node, console.ByteText(d.MemoryBytes))
			continue
		case d.Default:
			fmt.Fprintf(&b, "%s (default)\n", d.Name)
		default:
			fmt.Fprintf(&b, "%s\n", d.Name)
		}
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		line := func(name, text string) { _, _ = fmt.Fprintf(w, "  %s\t%s\n", name, text) }
		if d.Detail != "" {
			line("device", d.Detail)
		}
		memory := "not known"
		if d.MemoryBytes > 0 {
			memory = fmt.Sprintf("%s, %s free", console.ByteText(d.MemoryBytes), console.ByteText(d.FreeBytes))
		}
		line("memory", memory)
		threads := fmt.Sprint(d.Threads)
		if d.Reason != "" {
			threads += ": " + d.Reason
		}
		line("threads", threads)
		line("compute", strings.Join(d.Compute, ", "))
		title := "instruction sets"
		for _, set := range d.ISAs {
			switch {
			case set.Default:
				line(title, set.Name+" (default)")
			case set.Available:
				line(title, set.Name)
			default:
				line(title, set.Name+": not available: "+set.Missing)
			}
			title = ""
		}
		_ = w.Flush() // a builder does not fail
	}
	return b.String()
}
