package checkpoint

import (
	"encoding/binary"
	"math"
	"regexp"

	"github.com/foretoken/foretoken/internal/dtype"
)

// maxRounds is how many rounds of ParoQuant's rotations are read. Published files have eight.
const maxRounds = 16

// expert is the name of an expert's matrix. ParoQuant has one rotation for gate and up of all experts of a layer, and
// one for down, whose tensors are beside the experts.
var expert = regexp.MustCompile(`^(.*\.experts)\.\d+\.(gate|up|down)_proj$`)

// rotation is the prefix of the names of the tensors of ParoQuant's rotation, and whether modules share it.
func (m *module) rotation() (prefix string, shared bool) {
	if at := expert.FindStringSubmatch(m.name); at != nil && !m.Has(m.name+".theta") {
		kind := "gate_up"
		if at[2] == "down" {
			kind = at[2]
		}
		return at[1] + "." + kind + "_weight_", true
	}
	return m.name + ".", false
}

// rotated gives matrices of ParoQuant the rotation of their inputs.
func (m *module) rotated(ms []dtype.Matrix) error {
	prefix, shared := m.rotation()
	found := m.quant.method == "paroquant"
	for _, part := range []string{"theta", "pairs", "channel_scales"} {
		found = found || m.Has(prefix+part)
	}
	if !found {
		return nil
	}
	in := m.inputs.turn(prefix)
	if in == nil {
		var err error
		if in, err = m.readRotation(prefix, &ms[0]); err != nil {
			return err
		}
		if shared && !m.look {
			m.inputs.keep(prefix, in)
		}
	}
	for i := range ms {
		if ms[i].Input != nil {
			return m.elements.errorf("it has both the rotation of ParoQuant and the order of GPTQ")
		}
		ms[i].Input = in
	}
	return nil
}

// turn is a rotation that was kept, keep keeps one for other modules.
func (s *inputs) turn(name string) *dtype.Input {
	s.Lock()
	defer s.Unlock()
	return s.turns[name]
}

func (s *inputs) keep(name string, in *dtype.Input) {
	s.Lock()
	defer s.Unlock()
	if s.turns == nil {
		s.turns = map[string]*dtype.Input{}
	}
	s.turns[name] = in
}

// readRotation reads the three tensors of a rotation. With look it has rounds only.
func (m *module) readRotation(prefix string, x *dtype.Matrix) (*dtype.Input, error) {
	var parts [3]*entry
	for i, name := range []string{"theta", "pairs", "channel_scales"} {
		var err error
		if parts[i], err = m.companion(m.elements, prefix+name); err != nil {
			return nil, err
		}
	}
	angles, pairs, scales := parts[0], parts[1], parts[2]
	if x.Group != dtype.RotationGroup || m.cols%dtype.RotationGroup != 0 {
		return nil, m.elements.errorf("ParoQuant with %d columns in groups of %d is not supported, want groups of %d", m.cols, x.Group, dtype.RotationGroup)
	}
	rounds := 0
	if len(angles.shape) == 2 {
		rounds = angles.shape[0]
	}
	if rounds < 1 || rounds > maxRounds || angles.shape[1] != m.cols/2 {
		return nil, angles.errorf("shape %s, want [1 to %d, %d]", shapeText(angles.shape), maxRounds, m.cols/2)
	}
	if pairs.typ != dtype.I16 {
		return nil, pairs.errorf("type %v, want I16", pairs.typ)
	}
	if err := pairs.want([]int{rounds, m.cols}); err != nil {
		return nil, err
	}
	if m.look {
		for _, e := range []*entry{angles, scales} {
			if err := m.LookVector(e.name, e.numbers()); err != nil {
				return nil, err
			}
		}
		return &dtype.Input{Rotation: &dtype.Rotation{Rounds: rounds}}, m.LookVector(scales.name, m.cols)
	}
	theta, err := m.finite(angles, rounds*m.cols/2)
	if err != nil {
		return nil, err
	}
	factors, err := m.finite(scales, m.cols)
	if err != nil {
		return nil, err
	}
	b, err := pairs.load()
	if err != nil {
		return nil, err
	}
	places := make([]uint8, rounds*m.cols)
	for i := range places {
		at := binary.LittleEndian.Uint16(b[2*i:])
		if at >= dtype.RotationGroup {
			return nil, pairs.errorf("round %d has the place %d at column %d, want one below %d", i/m.cols, int16(at), i%m.cols, dtype.RotationGroup)
		}
		places[i] = uint8(at)
	}
	in := dtype.NewRotation(factors, theta, places)
	if err := in.Validate(m.cols); err != nil {
		return nil, pairs.errorf("%w", err)
	}
	return in, nil
}

// finite is the numbers of a tensor, all of which are finite.
func (m *module) finite(e *entry, n int) ([]float32, error) {
	v, err := m.Vector(e.name, n)
	if err != nil {
		return nil, err
	}
	for i, x := range v {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return nil, e.errorf("number %d is %g: the file is damaged", i, x)
		}
	}
	return v, nil
}
