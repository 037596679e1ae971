package benchmarks

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/bench"
)

// A device that has no instruction sets, or is missing, is opened all the same: that it is missing
// is an error.
func TestBenchMeasuresWithoutInstructionSets(t *testing.T) {
	f := newBenchFlags(1)
	f.Device.Value, f.Device.Given = "other", true
	if sets := f.sets(true); !slices.Equal(sets, []string{""}) {
		t.Errorf("measured with %q", sets)
	}
}

func TestKernelsAreATable(t *testing.T) {
	m := bench.Machine{Version: "1.0, go1.26, linux/amd64", Threads: 4, Reason: "one for each core"}
	r := &bench.KernelReport{Machine: m, Device: "cpu", ReadGBs: 20, Kernels: []bench.Kernel{{Type: "zero-point", Passes: []bench.Pass{
		{Rows: 1, Seconds: 0.0005, GBs: 18, OfRead: 0.9, OfOne: 1, GOps: 60}, {Rows: 8, Seconds: 0.001, GBs: 9, OfRead: 0.45, OfOne: 2, GOps: 240},
	}}}}
	var out strings.Builder
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	err := newBenchFlags(1).print(cmd, r, func(w io.Writer) { printKernels(w, r) })
	if want := `foretoken 1.0, go1.26, linux/amd64
processor not known, 4 threads: one for each core
cpu, memory reads at 20.0 GB/s

type        rows        ms      GB/s   of read   of one row     Gop/s
zero-point     1     0.500      18.0      0.90         1.00        60
zero-point     8     1.000       9.0      0.45         2.00       240
`; err != nil || out.String() != want {
		t.Errorf("error %v, printed\n%swant\n%s", err, out.String(), want)
	}
}

// A report names its processor and the reason of its threads, so that users can send it.
func TestBenchReportsNameTheMachine(t *testing.T) {
	f := newBenchFlags(1)
	i := slices.IndexFunc(backend.List(), func(d backend.Info) bool { return d.Name == "cpu" })
	if got, cpu := f.machine(), backend.List()[i]; got.Processor != cpu.Detail || got.Threads != cpu.Threads || got.Reason != cpu.Reason || got.Reason == "" {
		t.Errorf("%+v, the processor is %+v", got, cpu)
	}
	f.Threads.Value, f.Threads.Given = 3, true
	if got := f.machine(); got.Threads != 3 || got.Reason != "--threads" {
		t.Errorf("%+v", got)
	}
}

func TestBenchTableThatCannotBeWrittenIsAnError(t *testing.T) {
	broken, err := os.Open(os.DevNull) // for reading
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = broken.Close() }()
	cmd := &cobra.Command{}
	cmd.SetOut(broken)
	err = newBenchFlags(1).print(cmd, nil, func(w io.Writer) { printKernels(w, &bench.KernelReport{}) })
	if !console.IsOutputError(err) {
		t.Errorf("error %v", err)
	}
}

// An answer that is not plain decoding's is an error, once the report has been shown.
func TestBenchDecodeFailsIfNotExact(t *testing.T) {
	var out bytes.Buffer
	f := &decodeBench{out: &benchOutput{json: true}}
	setting := bench.Setting{Text: bench.Text{Class: "story"}, Rule: "exact", Batch: 1}
	err := f.show(&console.Console{Out: &out, Err: io.Discard}, &bench.DecodeReport{Mismatches: []bench.Mismatch{{Setting: setting, Depth: 1, What: "tokens differ"}}})
	if err == nil || !strings.Contains(out.String(), "tokens differ") {
		t.Errorf("error %v after %s", err, out.String())
	}
}
