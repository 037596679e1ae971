package convert

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Encoding is how a matrix is to be stored.
type Encoding struct {
	Format dtype.Format // Plain, Affine, MXFP4, NVFP4 or MXFP8
	Bits   int          // Affine: 2, 3, 4, 5, 6 or 8
	Group  int          // Affine: 32, 64 or 128 columns that share a scale
	Type   dtype.Type   // Plain: of the numbers; Invalid: as in the source
}

// Defaults of quantization, and the minimum for small matrices with a large influence.
const (
	DefaultBits  = 4
	DefaultGroup = 64
	carefulBits  = 8
)

var (
	careful = Encoding{Format: dtype.Affine, Bits: carefulBits, Group: DefaultGroup}
	widths  = []int{2, 3, 4, 5, 6, 8}
	groups  = []int{32, 64, 128}
	modes   = map[string]dtype.Format{"mxfp4": dtype.MXFP4, "nvfp4": dtype.NVFP4, "mxfp8": dtype.MXFP8}
	types   = map[string]dtype.Type{"float16": dtype.F16, "bfloat16": dtype.BF16, "float32": dtype.F32}
)

// ParseType reads the name of a type of numbers: float16, bfloat16 or float32.
func ParseType(name string) (dtype.Type, error) {
	if t, ok := types[name]; ok {
		return t, nil
	}
	return dtype.Invalid, fmt.Errorf("convert: type %q, want float16, bfloat16 or float32", name)
}

// ParseEncoding reads bits, bits:group, a mode (mxfp4, nvfp4, mxfp8) or a type of numbers.
// If text has only bits, group is the group.
func ParseEncoding(text string, group int) (Encoding, error) {
	if f, ok := modes[text]; ok {
		return Encoding{Format: f}, nil
	}
	if t, ok := types[text]; ok {
		return Encoding{Format: dtype.Plain, Type: t}, nil
	}
	bits, size, cut := strings.Cut(text, ":")
	e := Encoding{Format: dtype.Affine, Group: group}
	var err error
	if e.Bits, err = strconv.Atoi(bits); err == nil && cut {
		e.Group, err = strconv.Atoi(size)
	}
	if err != nil || e.validate() != nil {
		return Encoding{}, fmt.Errorf("convert: encoding %q, want bits (2, 3, 4, 5, 6 or 8), bits:group (32, 64 or 128), "+
			"mxfp4, nvfp4, mxfp8, float16, bfloat16 or float32", text)
	}
	return e, nil
}

func (e Encoding) validate() error {
	switch e.Format {
	case dtype.Plain, dtype.MXFP4, dtype.NVFP4, dtype.MXFP8:
		return nil
	case dtype.Affine:
		if slices.Contains(widths, e.Bits) && slices.Contains(groups, e.Group) {
			return nil
		}
	}
	return fmt.Errorf("convert: no encoding has format %v with %d bits in groups of %d", e.Format, e.Bits, e.Group)
}

// form is a matrix of the encoding, without rows or data; t is the type of plain numbers
// and of affine scales.
func (e Encoding) form(t dtype.Type) dtype.Matrix {
	m := dtype.Matrix{Format: e.Format}
	switch e.Format {
	case dtype.Affine:
		m.Bits, m.Group, m.ScaleType = e.Bits, e.Group, t
	case dtype.MXFP4, dtype.MXFP8:
		m.Group, m.ScaleType = 32, dtype.F8E8M0
	case dtype.NVFP4:
		m.Group, m.ScaleType, m.Global = 16, dtype.F8E4M3, 1
	default:
		if m.Type = e.Type; m.Type == dtype.Invalid {
			m.Type = t
		}
	}
	return m
}

// Override is an encoding for some weights.
type Override struct {
	// Pattern is a glob, as path.Match reads it, for the whole path of a module, either
	// canonical (layers.0.mlp.down_proj, embed_tokens, mtp.fc) or as it will be stored
	// (language_model.model.layers.0.mlp.down_proj). A star stands for dots too.
	Pattern  string
	Encoding Encoding
}

// ParseOverride reads PATTERN=ENCODING.
func ParseOverride(text string, group int) (Override, error) {
	i := strings.LastIndexByte(text, '=')
	if i < 1 {
		return Override{}, fmt.Errorf("convert: override %q, want PATTERN=ENCODING, such as mtp.*=8", text)
	}
	o := Override{Pattern: text[:i]}
	if _, err := path.Match(o.Pattern, ""); err != nil {
		return Override{}, fmt.Errorf("convert: override %q: pattern: %w", text, err)
	}
	var err error
	o.Encoding, err = ParseEncoding(text[i+1:], group)
	return o, err
}

// matches reports whether the override is for a weight, which is stored under a name.
func (o *Override) matches(w *weights.Weight, stored string) bool {
	for _, name := range []string{w.Name, stored} {
		if ok, _ := path.Match(o.Pattern, strings.TrimSuffix(name, ".weight")); ok {
			return true
		}
	}
	return false
}

// recipe decides how each weight is stored.
type recipe struct {
	*Options
	stored naming   // names of converted checkpoints
	used   []bool   // by override
	whole  []string // matrices left unchanged because their rows cannot be cut into groups
}

func newRecipe(o *Options, v *weights.Inventory) *recipe {
	return &recipe{Options: o, stored: v.Converted.Name, used: make([]bool, len(o.Overrides))}
}

// choose is the requested encoding, nil to keep the weight unchanged. strict reports that
// it was requested by name.
func (r *recipe) choose(w *weights.Weight) (e *Encoding, strict bool) {
	for i := len(r.Overrides) - 1; i >= 0; i-- {
		o := &r.Overrides[i]
		if o.matches(w, r.stored(w.Name)) && (w.IsMatrix() || o.Encoding.Format == dtype.Plain) {
			r.used[i] = true
			return floor(w, &o.Encoding), true
		}
	}
	if w.Keeps {
		return nil, false
	}
	general, apart := r.Quantize, w.Head() || w.Tower()
	switch {
	case w.Head():
		general = r.Head
	case w.Tower():
		general = r.Vision
	}
	switch {
	case w.Kind == weights.Table && general != nil && general.Format != dtype.Plain:
		return nil, false
	case r.Dequantize && (!apart || general == nil):
		return &Encoding{Format: dtype.Plain}, false
	case general != nil && general.Format != dtype.Plain && w.Kind == weights.Router:
		return &careful, false
	}
	return floor(w, general), false
}

// floor is e, or careful for the matrix that joins the head to the model if e is coarse:
// it is small, and every draft token goes through it.
func floor(w *weights.Weight, e *Encoding) *Encoding {
	if w.Name != "mtp.fc.weight" || e == nil || e.Format == dtype.Plain || e.Format == dtype.MXFP8 || e.Format == dtype.Affine && e.Bits >= carefulBits {
		return e
	}
	raised := careful
	if e.Format == dtype.Affine {
		raised.Group = e.Group
	}
	return &raised
}

// matrix is the form of a matrix that is stored as the given ones are.
func (r *recipe) matrix(w *weights.Weight, stored []dtype.Matrix) (dtype.Matrix, error) {
	s := stored[0]
	t := r.Type
	if t == dtype.Invalid || w.Keeps {
		t = numbers(&s)
	}
	e, strict := r.choose(w)
	if e != nil {
		f := e.form(t)
		f.Rows, f.Cols = w.Rows, w.Cols
		if f.Format == dtype.Plain || w.Cols%f.Group == 0 {
			return f, nil
		}
		if strict {
			return f, fmt.Errorf("convert: %s: rows of %d columns are not a multiple of the group size %d: exclude it from the override",
				w.Name, w.Cols, f.Group)
		}
		r.whole = append(r.whole, w.Name)
	}
	for i := range stored {
		if !sameForm(&s, &stored[i]) {
			return s, fmt.Errorf("convert: %s: its experts have different encodings: choose one with an override", w.Name)
		}
	}
	only := r.Type
	if w.Keeps {
		only = dtype.Invalid
	}
	s = kept(&s, only)
	s.Rows, s.Cols = w.Rows, w.Cols
	return s, nil
}

// numbers is the type of the numbers that a stored matrix has, or stands for.
func numbers(m *dtype.Matrix) dtype.Type {
	switch m.Format {
	case dtype.Plain:
		return m.Type
	case dtype.Affine, dtype.ZeroPoint:
		return m.ScaleType
	default:
		if a, ok := m.AffineForm(); ok {
			return a.ScaleType
		}
		if m.Format.Blocks() {
			return dtype.F32 // levels times scales are no shorter
		}
		return dtype.BF16
	}
}

// sameForm reports whether the bytes of two matrices mean the same.
func sameForm(a, b *dtype.Matrix) bool {
	return a.Format == b.Format && a.Type == b.Type && a.Bits == b.Bits && a.Group == b.Group && a.ScaleType == b.ScaleType &&
		(a.Input == nil) == (b.Input == nil)
}

// unused is the pattern of an override that is for nothing, or "".
func (r *recipe) unused() string {
	for i, used := range r.used {
		if !used {
			return r.Overrides[i].Pattern
		}
	}
	return ""
}
