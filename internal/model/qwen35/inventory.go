package qwen35

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Kind is what a weight is to the network, which decides how it may be stored.
type Kind uint8

const (
	// Matrix multiplies activations or is looked up; it may be quantized.
	Matrix Kind = iota
	// Router is a matrix that chooses: small errors in it have large effects.
	Router
	// Gain is that of a norm as it is effective, whatever the file holds.
	Gain
	// Vector is numbers that are used as they are stored.
	Vector
	// Decay is the logarithms of decay rates.
	Decay
	// Conv is a convolution of Rows channels with a kernel of Cols.
	Conv
)

// Weight is one weight of a network under its canonical name, which is the same whatever
// layout the checkpoint has: that of the raw release without the prefix of the language
// model, except that experts are stacks called switch_mlp as in converted checkpoints.
type Weight struct {
	Name       string // of the tensor, such as layers.0.mlp.down_proj.weight
	Kind       Kind
	Experts    int // matrices in the stack; 0: it is no stack
	Rows, Cols int // of one matrix; other weights but Conv have one row

	stretches []stretch
	norms     *normRule
}

// stretch is where matrices of a weight are stored: a module, or some rows of it.
type stretch struct {
	from       *checkpoint.Weights
	path       string
	stacked    int // matrices in the module; 0: it is no stack
	rows, cols int // of a stored matrix
	pick       []int
	r0, r1     int // rows [r0, r1) of each if pick is nil
}

// IsMatrix reports whether the weight is a matrix or a stack of them: the others have
// Values.
func (w *Weight) IsMatrix() bool { return w.Kind == Matrix || w.Kind == Router }

// Head reports whether the weight is one of the multi-token-prediction head.
func (w *Weight) Head() bool { return strings.HasPrefix(w.Name, "mtp.") }

// Count is the number of matrices.
func (w *Weight) Count() int { return max(w.Experts, 1) }

// Parameters is the number of numbers.
func (w *Weight) Parameters() int64 { return int64(w.Count()) * int64(w.Rows) * int64(w.Cols) }

// Stored is how the matrices are stored, by the headers alone: matrices without Data.
func (w *Weight) Stored() ([]dtype.Matrix, error) {
	return w.matrices((*checkpoint.Weights).LookMatrix, (*checkpoint.Weights).LookStack)
}

// Matrices are the matrices as they are stored: views of the checkpoint where its layout
// allows.
func (w *Weight) Matrices() ([]dtype.Matrix, error) {
	return w.matrices((*checkpoint.Weights).Matrix, (*checkpoint.Weights).MatrixStack)
}

func (w *Weight) matrices(
	one func(_ *checkpoint.Weights, path string, rows, cols int) (dtype.Matrix, error),
	many func(_ *checkpoint.Weights, path string, n, rows, cols int) ([]dtype.Matrix, error),
) ([]dtype.Matrix, error) {
	list := make([]dtype.Matrix, 0, w.Count())
	for _, p := range w.stretches {
		var ms []dtype.Matrix
		var err error
		if p.stacked > 0 {
			ms, err = many(p.from, p.path, p.stacked, p.rows, p.cols)
		} else {
			ms = make([]dtype.Matrix, 1)
			ms[0], err = one(p.from, p.path, p.rows, p.cols)
		}
		if err != nil {
			return nil, fmt.Errorf("qwen35: %w", err)
		}
		for _, m := range ms {
			if p.pick != nil {
				m = m.Gather(p.pick)
			} else {
				m = m.RowRange(p.r0, p.r1)
			}
			list = append(list, m)
		}
	}
	return list, nil
}

// Release tells the system that m, some rows of Matrices, is not needed for now.
func (w *Weight) Release(m dtype.Matrix) {
	for i, p := range w.stretches {
		if i == 0 || p.from != w.stretches[0].from {
			p.from.ReleaseMatrix(m)
		}
	}
}

// Type is the type in which the numbers of a weight that is no matrix are stored.
func (w *Weight) Type() dtype.Type {
	t, _ := w.stretches[0].from.Look(w.stretches[0].path)
	return t.Type
}

// Values are the numbers of a weight that is no matrix. Those of a Gain are effective:
// with the one that raw files leave out.
func (w *Weight) Values() ([]float32, error) {
	p := w.stretches[0]
	v, err := p.from.Vector(p.path, w.Rows*w.Cols)
	if err != nil {
		return nil, fmt.Errorf("qwen35: %w", err)
	}
	if w.Kind == Gain && w.norms.of(w.Name, v) == stored0p {
		for i := range v {
			v[i]++
		}
	}
	return v, nil
}

// Scaled reports whether the file has a factor for a whole matrix.
func (w *Weight) Scaled() bool {
	return slices.ContainsFunc(w.stretches, func(p stretch) bool { return p.from.Has(p.path + ".global_scale") })
}

// Extra is a tensor that a text model has no use for, such as one of an image tower.
type Extra struct {
	From *checkpoint.Weights
	Name string // in its file
	// Canonical is the name without the prefixes of a release.
	Canonical string
}

// Inventory is all weights of a checkpoint, checked against its config: each is there, has
// the right shape, and no tensor is left over.
type Inventory struct {
	Weights []Weight // the backbone's in the order of its layers, then the head's
	Extras  []Extra
	cfg     *config
	source  *checkpoint.Checkpoint
}

// Portion is a part of a network.
type Portion uint8

const (
	// Whole is the backbone, and the head if there is one.
	Whole Portion = iota
	// Trunk is the backbone alone.
	Trunk
	// HeadOnly is the head alone; nothing else need be there.
	HeadOnly
)

// ErrNoHead is wrapped by the error of looking for a head where there is none.
var ErrNoHead = errors.New("there is no multi-token-prediction head")

// TakeInventory lists the weights of a checkpoint, which stays open as long as they are
// used. It reads no more of it than the headers and the norms of the head. The checkpoint
// may also be that of a head in a folder of its own.
func TakeInventory(c *checkpoint.Checkpoint, part Portion, log *slog.Logger) (*Inventory, error) {
	cfg, err := readConfig(c)
	if err != nil {
		return nil, err
	}
	found, err := findNames(c, cfg, log)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(cfg.modelType, "_mtp") {
		found = found.asHead()
	}
	rule, err := findNormRule(c, found, cfg, log)
	if err != nil {
		return nil, fmt.Errorf("qwen35: %w", err)
	}
	l := &lister{cfg: cfg, names: found, norms: &rule}
	if part != HeadOnly {
		l.trunk()
	}
	switch hasHead := found.hasHead(); {
	case part == HeadOnly && !hasHead:
		return nil, fmt.Errorf("qwen35: %s: %w: a converter has probably dropped its mtp tensors", c.Name(), ErrNoHead)
	case part != Trunk && hasHead:
		l.head()
	}
	if err := l.verdict(); err != nil {
		return nil, err
	}
	v := &Inventory{Weights: l.weights, cfg: cfg, source: c}
	if err := v.check(found, part); err != nil {
		return nil, err
	}
	return v, nil
}

// asHead is the names of a folder that holds nothing but a head.
func (n names) asHead() names {
	head := names{}
	for name, p := range n {
		if !strings.HasPrefix(name, "mtp.") {
			name = "mtp." + name
		}
		p.side = true
		head[name] = p
	}
	return head
}

// check looks at each header, which marks the tensors as used, and refuses what is left.
func (v *Inventory) check(found names, part Portion) error {
	for i := range v.Weights {
		w := &v.Weights[i]
		var err error
		if w.IsMatrix() {
			_, err = w.Stored()
		} else if err = w.stretches[0].from.LookVector(w.stretches[0].path, w.Rows*w.Cols); err != nil {
			err = fmt.Errorf("qwen35: %w", err)
		}
		if err != nil {
			return err
		}
	}
	of := func(from *checkpoint.Weights) []string {
		var left []string
		for _, n := range from.Tensors() {
			if name, needed := canonical(n); !needed {
				v.Extras = append(v.Extras, Extra{from, n, name})
			}
		}
		for _, n := range from.Unused() {
			name, _ := canonical(n)
			if isHead := strings.HasPrefix(name, "mtp."); part == Whole || isHead == (part == HeadOnly) {
				left = append(left, n)
			}
		}
		return left
	}
	left := of(v.source.Weights)
	for _, s := range v.source.Sidecars {
		if found.from(s.Weights) && part != Trunk {
			left = append(left, of(s.Weights)...)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("qwen35: %d tensors are not part of a %s model: %s", len(left), v.cfg.modelType, list(left))
	}
	return nil
}

// Stored is how many tensors of the files the weights are made of, scales and biases
// included, how many of these are the head's, and what all occupy.
func (v *Inventory) Stored() (tensors, head int, bytes int64) {
	type name struct {
		from *checkpoint.Weights
		name string
	}
	seen := map[name]bool{}
	for i := range v.Weights {
		w := &v.Weights[i]
		for _, p := range w.stretches {
			for _, suffix := range []string{"", ".weight", ".scales", ".biases", ".global_scale", ".weight_scale_inv", "_scale_inv"} {
				t, ok := p.from.Look(p.path + suffix)
				at := name{p.from, t.Name}
				if !ok || seen[at] {
					continue
				}
				seen[at] = true
				tensors++
				bytes += int64(elements(t.Shape)) * int64(t.Type.Size())
				if w.Head() {
					head++
				}
			}
		}
	}
	return tensors, head, bytes
}

// HasHead reports whether the head is among the weights.
func (v *Inventory) HasHead() bool {
	return len(v.Weights) > 0 && v.Weights[len(v.Weights)-1].Head()
}

// AddHead adds the head of another inventory, which must have the shape that the config of
// this one asks for.
func (v *Inventory) AddHead(from *Inventory) error {
	if v.HasHead() {
		return errors.New("qwen35: the checkpoint has a multi-token-prediction head already")
	}
	want := &lister{cfg: v.cfg, any: true}
	want.head()
	i := slices.IndexFunc(from.Weights, func(w Weight) bool { return w.Head() })
	if i < 0 {
		return fmt.Errorf("qwen35: %s: %w", from.source.Name(), ErrNoHead)
	}
	head := from.Weights[i:]
	if len(head) != len(want.weights) {
		return fmt.Errorf("qwen35: the head is for a model %s experts, this one is %s", from.cfg.withExperts(), v.cfg.withExperts())
	}
	for j := range head {
		h, w := &head[j], &want.weights[j]
		if h.Name != w.Name || h.Experts != w.Experts || h.Rows != w.Rows || h.Cols != w.Cols {
			return fmt.Errorf("qwen35: the head is of another model: its %s is %s, this model needs %s %s",
				h.Name, h.shape(), w.Name, w.shape())
		}
	}
	v.Weights = append(slices.Clone(v.Weights), head...)
	return nil
}

func (c *config) withExperts() string {
	if c.experts > 0 {
		return "with"
	}
	return "without"
}

// shape writes the weight's shape as headers do.
func (w *Weight) shape() string {
	if w.Experts > 0 {
		return fmt.Sprintf("[%d, %d, %d]", w.Experts, w.Rows, w.Cols)
	}
	return fmt.Sprintf("[%d, %d]", w.Rows, w.Cols)
}
