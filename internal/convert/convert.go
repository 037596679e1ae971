package convert

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// defaultShardSize is the maximum size of one file of weights in bytes.
const defaultShardSize = 5_000_000_000

// Options are the changes to a model. The zero value changes only its layout.
type Options struct {
	// Quantize is the encoding of the model's matrices, without those of its head and its vision
	// tower; nil leaves them unchanged. The routers of experts always get 8 bits. A matrix whose rows
	// cannot be cut into groups is not changed.
	Quantize *Encoding
	// Head is the encoding of the head's matrices; nil leaves them unchanged. The matrix
	// that joins it to the model, mtp.fc, has at least 8 bits.
	Head *Encoding
	// Vision is the encoding of the matrices of the vision tower; nil leaves them unchanged. Its
	// first convolution and its table of positions always stay numbers.
	Vision *Encoding
	// NoVision leaves the vision tower out. One that cannot be used is left out always.
	NoVision bool
	// Overrides go before these; of several that match the last counts.
	Overrides []Override
	// Dequantize makes all matrices plain that neither an override, nor Head, nor Vision is for.
	Dequantize bool
	// Type is the type of all numbers that are not codes, except the logarithms of decay
	// rates. Invalid keeps the types; gains of norms to which 1 was added are then
	// float32 if their own type would round them.
	Type dtype.Type

	ShardSize int64 // maximum bytes of one file; 0: defaultShardSize
	Force     bool  // replace the model that is at the destination
	Threads   int   // 0: one per processor

	Progress func(Progress) // called now and then by any goroutine, one at a time; may be nil
	Log      *slog.Logger   // nil: nothing is logged
}

// Summary counts the work of a conversion.
type Summary struct {
	TensorsIn, TensorsOut int
	BytesIn, BytesOut     int64 // of the tensors
	HeadIn, HeadOut       int   // tensors of the head
	Parameters            int64
	Files                 int
	VisionIn, VisionOut   int      // tensors of the vision tower
	LeftOut               int      // tensors of a vision tower that are not written
	Drafter               bool     // it is a drafter
	Whole                 []string // matrices that were not quantized because their rows cannot be cut into groups
}

// BitsPerWeight is the size of the result by its parameters.
func (s *Summary) BitsPerWeight() float64 {
	return 8 * float64(s.BytesOut) / float64(max(s.Parameters, 1))
}

func (o *Options) check() error {
	for _, e := range []*Encoding{o.Quantize, o.Head, o.Vision} {
		if e == nil {
			continue
		}
		if err := e.validate(); err != nil {
			return err
		}
	}
	for _, x := range o.Overrides {
		if err := x.Encoding.validate(); err != nil {
			return err
		}
	}
	if o.Dequantize && o.Quantize != nil {
		return fmt.Errorf("convert: quantize and dequantize cannot be combined")
	}
	if o.NoVision && o.Vision != nil {
		return fmt.Errorf("convert: an encoding of the vision tower cannot be combined with leaving the tower out")
	}
	if o.ShardSize == 0 {
		o.ShardSize = defaultShardSize
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Convert writes the model src as a folder dir in the layout of MLX. Until all of it is
// written nothing is called dir; when it fails or ctx is canceled nothing is left.
func Convert(ctx context.Context, src *checkpoint.Checkpoint, dir string, o Options) (Summary, error) {
	return convert(ctx, src, dir, o, func(log *slog.Logger) (*weights.Inventory, error) {
		for _, inside := range []string{"drafter", "assistant"} {
			if _, err := src.ReadFile(inside + "/config.json"); err == nil {
				at := filepath.Join(dir, inside)
				log.Warn(fmt.Sprintf("the drafter in %s of %s is not converted with the model: convert it to %s, or copy it there", inside, src.Name(), at))
			}
		}
		return model.Inventory(src, weights.Whole, log)
	})
}

// taking is a way to come by the weights that are to be written.
type taking func(log *slog.Logger) (*weights.Inventory, error)

// convert is Convert for the weights that take returns. src is where everything else is.
func convert(ctx context.Context, src *checkpoint.Checkpoint, dir string, o Options, take taking) (s Summary, err error) {
	if err := o.check(); err != nil {
		return s, err
	}
	out, err := newFolder(dir, src.Name(), o.Force)
	if err != nil {
		return s, err
	}
	defer func() { err = out.finish(err) }()
	v, err := take(o.Log)
	if err != nil {
		return s, err
	}
	vision := len(v.Tower) > 0 && !o.NoVision
	if vision {
		v.IncludeTower()
	}
	r := newRecipe(&o, v)
	p, err := r.plan(v, v.Converted.Name)
	if err != nil {
		return s, err
	}
	p.shard(o.ShardSize)
	s = p.summary(v)
	s.Whole = r.whole
	if !s.Drafter { // whose extras mean nothing
		s.LeftOut = len(v.Extras) - s.VisionIn
	}
	config, err := v.Converted.Config(v.HasHead(), vision)
	if err != nil {
		return s, err
	}
	setType(config, o.Type)
	setQuantization(config, p.quantization(o.Quantize))
	// The slow part comes last: faults of the fast ones are reported at once.
	if err := copyTexts(src, out.temp, vision); err != nil {
		return s, err
	}
	if err := writeJSON(out.temp, "config.json", config); err != nil {
		return s, err
	}
	if err := p.writeIndex(out.temp, &s); err != nil {
		return s, err
	}
	return s, p.write(ctx, out.temp, &o)
}

// summary counts the tensors that are read and written.
func (p *plan) summary(v *weights.Inventory) Summary {
	s := Summary{Files: len(p.files), Drafter: v.Drafter()}
	s.TensorsIn, s.HeadIn, s.VisionIn, s.BytesIn = v.Stored()
	for i := range v.Weights {
		s.Parameters += v.Weights[i].Parameters()
	}
	for _, it := range p.items {
		n := len(it.decls)
		s.TensorsOut += n
		s.BytesOut += it.size()
		switch {
		case it.weight.Head():
			s.HeadOut += n
		case it.weight.Tower():
			s.VisionOut += n
		}
	}
	return s
}

// String is the summary as a line for people.
func (s *Summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d tensors of %s became %d of %s, %.2f bits per weight", s.TensorsIn, size(s.BytesIn), s.TensorsOut, size(s.BytesOut), s.BitsPerWeight())
	if s.HeadIn+s.HeadOut > 0 {
		fmt.Fprintf(&b, "; the head is %d tensors of %d", s.HeadOut, s.HeadIn)
	} else if !s.Drafter {
		b.WriteString("; there is no multi-token-prediction head")
	}
	if s.VisionIn > 0 {
		fmt.Fprintf(&b, "; the vision tower is %d tensors of %d", s.VisionOut, s.VisionIn)
	}
	if s.LeftOut > 0 {
		fmt.Fprintf(&b, "; %d tensors of a vision tower left out", s.LeftOut)
	}
	if n := len(s.Whole); n > 0 {
		fmt.Fprintf(&b, "; %d matrices were not quantized: their rows are not a multiple of the group size", n)
	}
	return b.String()
}

func size(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	default:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
}
