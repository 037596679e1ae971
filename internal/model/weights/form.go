package weights

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// Form is how the matrices of a generated model are written.
type Form struct {
	name   string       // for ParseForm
	matrix dtype.Matrix // without rows, columns and data; Zeros that are empty and not nil stand for some
	// input makes the transformation of rows with that many numbers; may be nil.
	input func(cols int) *dtype.Input
}

// String is the name of the form, with bits and group where it leaves them open.
func (f Form) String() string { return f.name }

// Bits is the width of an element.
func (f Form) Bits() int { return f.matrix.ElementBits() }

// BitsForm is dtype.Affine of that many bits in groups of 64, or of 16: bf16.
func BitsForm(bits int) Form {
	if bits == 16 {
		return Form{name: "bf16", matrix: dtype.Matrix{Type: dtype.BF16}}
	}
	f, _ := ParseForm("affine", bits) // an invalid form is an error when it is generated
	return f
}

// openForms are the forms of several widths and groups, with the usual groups.
var openForms = []struct {
	name  string
	group int
	zeros []byte
	form  dtype.Format
	input func(cols int) *dtype.Input
}{
	{"affine", 64, nil, dtype.Affine, nil},
	{"symmetric", 128, nil, dtype.ZeroPoint, nil},
	{"zero-point", 128, []byte{}, dtype.ZeroPoint, nil},
	{"act-order", 128, []byte{}, dtype.ZeroPoint, shuffled},
	{"paro", 128, []byte{}, dtype.ZeroPoint, rotated},
}

// fixedForms are all other forms except those of GGUF files.
var fixedForms = map[string]dtype.Matrix{
	"bf16":  {Type: dtype.BF16},
	"f16":   {Type: dtype.F16},
	"f32":   {Type: dtype.F32},
	"fp8":   {Format: dtype.FP8, Group: 128, ScaleType: dtype.F32},
	"mxfp8": {Format: dtype.MXFP8, Group: 32, ScaleType: dtype.F8E8M0},
	"mxfp4": {Format: dtype.MXFP4, Group: 32, ScaleType: dtype.F8E8M0},
	"nvfp4": {Format: dtype.NVFP4, Group: 16, ScaleType: dtype.F8E4M3},
}

// ggufPrefix distinguishes the small floats of GGUF files from others.
const ggufPrefix = "gguf-"

// FormNames are the names for ParseForm. Those of GGUF files ignore case.
func FormNames() []string {
	var names []string
	for _, o := range openForms {
		names = append(names, o.name)
	}
	names = append(names, "bf16", "f16", "f32", "fp8", "mxfp8", "mxfp4", "nvfp4")
	for f := dtype.Q4_0; f.Blocks(); f++ {
		name := strings.ToLower(f.String())
		if _, ok := fixedForms[name]; ok {
			name = ggufPrefix + name
		}
		names = append(names, name)
	}
	return names
}

// ParseForm is the form of a name of FormNames. Forms of several widths also take NAME:BITS or
// NAME:BITS:GROUP; otherwise they have the given bits.
func ParseForm(text string, bits int) (Form, error) {
	name, rest, given := strings.Cut(strings.ToLower(text), ":")
	for _, o := range openForms {
		if o.name != name {
			continue
		}
		group := o.group
		if given {
			width, size, sized := strings.Cut(rest, ":")
			var wrong [2]error
			bits, wrong[0] = strconv.Atoi(width)
			if sized {
				group, wrong[1] = strconv.Atoi(size)
			}
			if wrong[0] != nil || wrong[1] != nil {
				return Form{}, fmt.Errorf("weights: format %q: want %s:BITS or %[2]s:BITS:GROUP", text, name)
			}
		}
		m := dtype.Matrix{Format: o.form, Bits: bits, Group: group, ScaleType: dtype.BF16, Zeros: o.zeros, Cols: group}
		if err := m.ValidateFormat(); err != nil {
			return Form{}, fmt.Errorf("weights: format %q: %w", text, err)
		}
		m.Cols = 0
		return Form{name: fmt.Sprintf("%s:%d:%d", name, bits, group), matrix: m, input: o.input}, nil
	}
	if m, ok := fixedForms[name]; ok && !given {
		return Form{name: name, matrix: m}, nil
	}
	for f := dtype.Q4_0; f.Blocks() && !given; f++ {
		if strings.EqualFold(f.String(), strings.TrimPrefix(name, ggufPrefix)) {
			m := dtype.NewBlocks(f, 0, 0)
			return Form{name: name, matrix: m}, nil
		}
	}
	return Form{}, fmt.Errorf("weights: format %q is unknown; known: %s", text, strings.Join(FormNames(), ", "))
}

// unit is how many columns rows of the form are a multiple of.
func (f *Form) unit() int {
	switch m := &f.matrix; {
	case m.Format.Blocks():
		columns, _ := m.Format.BlockSize()
		return columns
	case m.Format == dtype.Plain, m.Format == dtype.FP8:
		return 1
	default:
		return m.Group
	}
}

// shuffled is an order of columns.
func shuffled(cols int) *dtype.Input {
	order := make([]int32, cols)
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, byNoise)
	return &dtype.Input{Order: order}
}

// byNoise compares numbers as if at random.
func byNoise[T uint8 | int32](a, b T) int {
	switch x, y := noise(int(a)), noise(int(b)); {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// rotated is a rotation as ParoQuant has them: eight rounds.
func rotated(cols int) *dtype.Input {
	const rounds = 8
	r := &dtype.Rotation{Rounds: rounds, Scales: make([]float32, cols)}
	for i := range r.Scales {
		r.Scales[i] = 1
	}
	places := make([]uint8, dtype.RotationGroup)
	for i := range places {
		places[i] = uint8(i)
	}
	slices.SortFunc(places, byNoise)
	for range rounds * cols / dtype.RotationGroup {
		r.Pairs = append(r.Pairs, places...)
	}
	for i := range rounds * cols / 2 {
		sin, cos := exactmath.Sincos32(float32(math.Pi * noise(i)))
		r.Cos, r.Sin = append(r.Cos, cos), append(r.Sin, sin)
	}
	return &dtype.Input{Rotation: r}
}
