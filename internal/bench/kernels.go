package bench

import (
	"cmp"
	"strings"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// KernelOptions say what to measure.
type KernelOptions struct {
	Types    []string // see KernelTypes
	Rows     []int
	Repeats  int // repetitions; the median counts
	Machine  Machine
	Memory   int // bytes of weights, and of the plain reads; 0: far more than a cache has
	Progress func(what string)
}

// Machine is what a report was measured with, as the caller knows it.
type Machine struct {
	Version   string `json:"version"`             // of the program, with compiler and platform
	Processor string `json:"processor,omitempty"` // of the host; "": the system does not tell
	Threads   int    `json:"threads"`
	Reason    string `json:"threads_reason"` // of this number
}

// KernelReport is what matrix products with weights from memory cost.
type KernelReport struct {
	Machine
	Device  string   `json:"device"`
	ReadGBs float64  `json:"read_gb_s"` // plain reading of memory, all threads
	Kernels []Kernel `json:"kernels"`
}

// Kernel is products with weights of one type, by rows.
type Kernel struct {
	Type   string `json:"type"`
	Passes []Pass `json:"passes"`
}

// KernelTypes are the weights that can be measured: qN for affine integers of N bits in groups
// of 64, and the forms of weights.FormNames, which have 4 bits where their names leave that open.
func KernelTypes() []string {
	return append([]string{"q2", "q3", "q4", "q5", "q6", "q8"}, weights.FormNames()...)
}

// KernelForm is the form of a type.
func KernelForm(name string) (weights.Form, error) {
	if bits, ok := strings.CutPrefix(name, "q"); ok && len(bits) == 1 {
		name = "affine:" + bits
	}
	return weights.ParseForm(name, 4)
}

// Kernels measures products of a 4096×4096 matrix. Several equal ones are used in rotation, so
// that no cache has them, and every measurement alternates with a plain read of memory.
func Kernels(dev backend.Backend, o KernelOptions) (*KernelReport, error) {
	say := o.Progress
	if say == nil {
		say = func(string) {}
	}
	memory := cmp.Or(o.Memory, plenty)
	stream, err := newStream(dev, memory)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	report := &KernelReport{Machine: o.Machine, Device: dev.Name()}
	var reads []float64
	for _, name := range o.Types {
		say("measuring " + name)
		k, err := newKernelRun(dev, name, o.Rows, memory)
		if err != nil {
			return nil, err
		}
		for range o.Repeats {
			reads = append(reads, stream.Read().Seconds())
			k.repeat(dev)
		}
		report.Kernels = append(report.Kernels, k.report(dev))
	}
	report.ReadGBs = float64(stream.Bytes()) / measure.Median(reads) / 1e9
	for i := range report.Kernels {
		for j := range report.Kernels[i].Passes {
			p := &report.Kernels[i].Passes[j]
			p.OfRead = p.GBs / report.ReadGBs
		}
	}
	return report, nil
}

const kernelSize = 4096

// kernelRun is the measurement of one type.
type kernelRun struct {
	name    string
	rows    []int
	weights []backend.Weight
	x, y    backend.Tensor
	times   [][]float64 // seconds of one product, by rows
}

func newKernelRun(dev backend.Backend, name string, rows []int, memory int) (*kernelRun, error) {
	f, err := KernelForm(name)
	if err != nil {
		return nil, err
	}
	m, err := f.Matrix(kernelSize, kernelSize)
	if err != nil {
		return nil, err
	}
	k := &kernelRun{name: name, rows: rows, times: make([][]float64, len(rows))}
	for total := int64(0); total < int64(memory); total += k.weights[0].Bytes() {
		w, err := dev.Load(backend.Int8, m)
		if err != nil {
			return nil, err
		}
		k.weights = append(k.weights, w)
	}
	maxRows := 0
	for _, r := range rows {
		maxRows = max(maxRows, r)
	}
	if k.x, err = dev.Alloc(dtype.F32, maxRows, kernelSize); err != nil {
		return nil, err
	}
	if k.y, err = dev.Alloc(dtype.F32, maxRows, kernelSize); err != nil {
		return nil, err
	}
	values := make([]float32, maxRows*kernelSize)
	for i := range values {
		values[i] = float32(i%255-127) / 127
	}
	return k, dev.Write(k.x, values)
}

// fewRows is the maximum number of rows in decoding. With more of them it is arithmetic
// that takes the time, not memory, and fewer matrices will do to measure it.
const fewRows = 16

// repeat measures one pass over the weights for each number of rows.
func (k *kernelRun) repeat(dev backend.Backend) {
	for i, rows := range k.rows {
		x, y := k.x.RowRange(0, rows), k.y.RowRange(0, rows)
		weights := k.weights[:max(len(k.weights)*fewRows/max(rows, fewRows), 1)]
		start := time.Now()
		for _, w := range weights {
			dev.MatMul(x, backend.Product{Dst: y, W: w})
		}
		k.times[i] = append(k.times[i], time.Since(start).Seconds()/float64(len(weights)))
	}
}

// report takes medians and frees the weights.
func (k *kernelRun) report(dev backend.Backend) Kernel {
	out := Kernel{Type: k.name}
	one := 0.0
	for i, rows := range k.rows {
		t := measure.Median(k.times[i])
		if one == 0 {
			one = t
		}
		out.Passes = append(out.Passes, Pass{
			Rows: rows, Seconds: t, GBs: float64(k.weights[0].Bytes()) / t / 1e9, OfOne: t / one,
			GOps: 2 * float64(rows) * kernelSize * kernelSize / t / 1e9,
		})
	}
	for _, w := range k.weights {
		dev.Unload(w)
	}
	dev.Free(k.x)
	dev.Free(k.y)
	return out
}
