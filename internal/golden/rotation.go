package golden

import (
	"encoding/binary"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Rotation is a rotation of ParoQuant with random pairs, angles and scales.
type Rotation struct {
	Input  *dtype.Input
	tables []Part
}

// rotationRounds is that of published files.
const rotationRounds = 8

// NewRotation makes the rotation of a seed for rows of cols numbers.
func NewRotation(seed uint64, cols int) *Rotation {
	rng := rand.New(rand.NewPCG(seed, uint64(cols)))
	angles, scales := make([]float32, rotationRounds*cols/2), make([]float32, cols)
	for i := range angles {
		angles[i] = float32(rng.NormFloat64())
	}
	for i := range scales {
		scales[i] = float32(0.5 + rng.Float64())
	}
	theta, factors := numbersOf(dtype.F16, angles), numbersOf(dtype.F16, scales)
	dtype.ToF32(angles, dtype.F16, theta)
	dtype.ToF32(scales, dtype.F16, factors)
	var places []uint8
	var pairs []byte
	for range rotationRounds * cols / dtype.RotationGroup {
		for _, p := range rng.Perm(dtype.RotationGroup) {
			places = append(places, uint8(p))
			pairs = binary.LittleEndian.AppendUint16(pairs, uint16(p))
		}
	}
	return &Rotation{dtype.NewRotation(scales, angles, places), []Part{
		{"theta", dtype.F16, []int{rotationRounds, cols / 2}, theta},
		{"pairs", dtype.I16, []int{rotationRounds, cols}, pairs},
		{"channel_scales", dtype.F16, []int{1, cols}, factors},
	}}
}

// Tables are the tensors of the rotation, under names with a prefix.
func (r *Rotation) Tables(prefix string) []Part {
	var list []Part
	for _, p := range r.tables {
		p.Suffix = prefix + p.Suffix
		list = append(list, p)
	}
	return list
}

// Encode writes a matrix that multiplies rotated inputs, and returns the equivalent matrix without rotation.
func (r *Rotation) Encode(values []float32, rows, cols int) (parts []Part, decoded []float32) {
	turned, row := make([]float32, len(values)), make([]float32, cols)
	for at := 0; at < len(values); at += cols {
		for i, s := range r.Input.Rotation.Scales {
			row[i] = values[at+i] / s / s // it is multiplied by s
		}
		r.Input.Apply(turned[at:][:cols], row)
	}
	l := integers("", ints{bits: 4, group: dtype.RotationGroup, scale: dtype.F16}, nil, awq)
	parts, decoded = l.Encode(turned, rows, cols)
	for at := 0; at < len(decoded); at += cols {
		r.Input.Undo(decoded[at:][:cols])
	}
	return parts, decoded
}

// paroQuant has a rotation for each shape, so that experts share theirs.
var paroQuant = Layout{
	Name: "paroquant", Rows: 32, Cols: dtype.RotationGroup, Rounds: true, Config: map[string]any{"quant_method": "paroquant"},
	Encode: func(values []float32, rows, cols int) ([]Part, []float32) {
		r := NewRotation(uint64(rows), cols)
		parts, decoded := r.Encode(values, rows, cols)
		return append(parts, r.Tables(".")...), decoded
	},
}

// Named is a matrix of a model.
type Named struct {
	Name   string // with ".weight"
	Shape  []int
	Values []float32
}

var (
	rotated = regexp.MustCompile(`\.layers\.\d+\.(self_attn\.[qkvo]_proj|linear_attn\.(in_proj_qkv|in_proj_z|out_proj)|mlp\.(shared_expert\.)?(gate|up|down)_proj)\.weight$`)
	experts = regexp.MustCompile(`^(.*\.layers\.\d+\.mlp\.experts)\.\d+\.(gate|up|down)_proj\.weight$`)
	narrow  = regexp.MustCompile(`\.mlp\.(shared_expert|experts\.\d+)\.(gate|up|down)_proj\.weight$`)
)

// WidenExpert repeats the inner columns of an expert, so that there are 128 of them. The function stays the same.
func WidenExpert(m Named) Named {
	kind := narrow.FindStringSubmatch(m.Name)
	if kind == nil {
		return m
	}
	rows, cols := m.Shape[0], m.Shape[1]
	if kind[2] != "down" {
		n := dtype.RotationGroup / rows
		return Named{m.Name, []int{n * rows, cols}, slices.Repeat(m.Values, n)}
	}
	n := dtype.RotationGroup / cols
	wide := Named{Name: m.Name, Shape: []int{rows, n * cols}}
	for at := 0; at < len(m.Values); at += cols {
		for range n {
			for _, v := range m.Values[at:][:cols] {
				wide.Values = append(wide.Values, v/float32(n))
			}
		}
	}
	return wide
}

// ParoQuant writes a matrix of a model as in ParoQuant's folders: every module has its rotation, but experts share
// two in a layer, which are written with the first of them. Suffixes of parts are names. It returns nothing for a
// matrix that those folders store as numbers: head, embedding, output and routers.
func ParoQuant(m Named) (parts []Part, decoded []float32) {
	prefix, first := strings.TrimSuffix(m.Name, ".weight")+".", true
	if strings.HasPrefix(m.Name, "mtp.") {
		return nil, nil
	}
	if e := experts.FindStringSubmatch(m.Name); e != nil {
		kind := "gate_up"
		if e[2] == "down" {
			kind = e[2]
		}
		prefix, first = e[1]+"."+kind+"_weight_", strings.Contains(m.Name, ".experts.0.") && e[2] != "up"
	} else if !rotated.MatchString(m.Name) {
		return nil, nil
	}
	seed := uint64(0)
	for _, c := range prefix {
		seed = 31*seed + uint64(c)
	}
	r := NewRotation(seed, m.Shape[1])
	parts, decoded = r.Encode(m.Values, m.Shape[0], m.Shape[1])
	for i := range parts {
		parts[i].Suffix = strings.TrimSuffix(m.Name, ".weight") + parts[i].Suffix
	}
	if first {
		parts = append(parts, r.Tables(prefix)...)
	}
	return parts, decoded
}
