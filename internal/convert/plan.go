package convert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// item is one weight to be written: a few tensors of one file.
type item struct {
	weight *weights.Weight
	form   dtype.Matrix           // of each matrix
	data   func() ([]byte, error) // bytes of the first tensor of an item that is not written by rows
	decls  []checkpoint.Decl      // numbers or codes, scales, biases
	global []float32              // of the last tensor of a stack that has factors; else nil

	file int     // which of the files
	at   []int64 // offset of each tensor in it
}

// size is the bytes of the item's tensors.
func (it *item) size() int64 {
	n := int64(0)
	for _, d := range it.decls {
		n += bytesOf(d)
	}
	return n
}

func bytesOf(d checkpoint.Decl) int64 {
	n := int64(d.Type.Size())
	for _, x := range d.Shape {
		n *= int64(x)
	}
	return n
}

// plan is everything that will be written, known before a byte of it is.
type plan struct {
	items []*item
	files []string
}

// naming maps canonical names to stored names.
type naming func(canonical string) string

// plan decides on all weights of an inventory.
func (r *recipe) plan(v *weights.Inventory, name naming) (*plan, error) {
	p := &plan{}
	for i := range v.Weights {
		it, err := r.item(&v.Weights[i], name)
		if err != nil {
			return nil, err
		}
		p.items = append(p.items, it)
	}
	if pattern := r.unused(); pattern != "" {
		return nil, fmt.Errorf("convert: override %q matches no weight of this model; paths look like layers.0.mlp.down_proj, embed_tokens or mtp.fc", pattern)
	}
	return p, nil
}

func (r *recipe) item(w *weights.Weight, name naming) (*item, error) {
	it := &item{weight: w}
	if !w.IsMatrix() {
		return it, r.numbers(it, name(w.Name))
	}
	if w.Kind == weights.Kernel {
		return it, r.kernel(it, name(w.Name))
	}
	stored, err := w.Stored()
	if err != nil {
		return nil, err
	}
	if it.form, err = r.matrix(w, stored); err != nil {
		return nil, err
	}
	f := &it.form
	shape := func(cols int) []int {
		if w.Experts > 0 {
			return []int{w.Experts, w.Rows, cols}
		}
		return []int{w.Rows, cols}
	}
	module := strings.TrimSuffix(name(w.Name), ".weight")
	if f.Format == dtype.Plain {
		it.decls = []checkpoint.Decl{{Name: module + ".weight", Type: f.Type, Shape: shape(w.Cols)}}
		return it, nil
	}
	it.decls = []checkpoint.Decl{
		{Name: module + ".weight", Type: dtype.U32, Shape: shape(w.Cols * f.ElementBits() / 32)},
		{Name: module + ".scales", Type: f.ScaleType, Shape: shape(f.Groups())},
	}
	if f.Format == dtype.Affine {
		it.decls = append(it.decls, checkpoint.Decl{Name: module + ".biases", Type: f.ScaleType, Shape: shape(f.Groups())})
		return it, nil
	}
	it.decls[1].Type = dtype.U8
	if from := stored[0].Format; f.Format == dtype.NVFP4 && (from == dtype.NVFP4Blocks || from == dtype.NVFP4 && w.Scaled()) {
		list, err := globals(w, r.Type == dtype.Invalid)
		if err != nil {
			return nil, err
		}
		it.global = list
		it.decls = append(it.decls, checkpoint.Decl{Name: module + ".global_scale", Type: dtype.F32, Shape: []int{w.Count()}})
	}
	return it, nil
}

// numbers completes the item of a weight that is not a matrix.
func (r *recipe) numbers(it *item, name string) error {
	w := it.weight
	t := w.Type()
	if w.Kind == weights.IDs {
		it.decls, it.data = []checkpoint.Decl{{Name: name, Type: t, Shape: []int{w.Cols}}}, w.Bytes
		return nil
	}
	if r.Type != dtype.Invalid && w.Kind != weights.Decay && !w.Keeps {
		t = r.Type
	} else if w.Kind == weights.Gain {
		v, err := w.Values()
		if err != nil {
			return err
		}
		if !exact(t, v) {
			t = dtype.F32 // 1 was added: the sum is not to be rounded
		}
	}
	if e, strict := r.choose(w); strict {
		t = e.Type
	}
	shape := []int{w.Cols}
	switch {
	case w.Kind == weights.Conv:
		shape = []int{w.Rows, w.Cols, 1}
	case w.Rows > 1:
		shape = w.Shape()
	}
	it.decls = []checkpoint.Decl{{Name: name, Type: t, Shape: shape}}
	it.data = func() ([]byte, error) {
		v, err := w.Values()
		if err != nil {
			return nil, err
		}
		return encodeNumbers(t, v)
	}
	return nil
}

// exact reports whether the type holds the numbers.
func exact(t dtype.Type, v []float32) bool {
	b := make([]byte, len(v)*t.Size())
	dtype.FromF32(b, t, v)
	back := make([]float32, len(v))
	dtype.ToF32(back, t, b)
	return slices.Equal(v, back)
}

// kernel completes the item of convolution kernels: numbers, channels last as MLX has them.
func (r *recipe) kernel(it *item, name string) error {
	w := it.weight
	stored, err := w.Stored()
	if err != nil {
		return err
	}
	t := r.Type
	if t == dtype.Invalid {
		t = stored[0].Type
	}
	if e, strict := r.choose(w); strict {
		if e.Format != dtype.Plain {
			return fmt.Errorf("convert: %s: convolution kernels are not quantized: exclude it from the override", w.Name)
		}
		t = e.form(t).Type
	}
	k := w.Kernel
	it.decls = []checkpoint.Decl{{Name: name, Type: t, Shape: []int{w.Rows, k[1], k[2], k[3], k[0]}}}
	it.data = func() ([]byte, error) {
		ms, err := w.Matrices()
		if err != nil {
			return nil, err
		}
		v, row := make([]float32, 0, w.Rows*w.Cols), make([]float32, w.Cols)
		for i := range w.Rows {
			ms[0].PlainRow(row, i)
			for p := range w.Cols / k[0] {
				for c := range k[0] {
					v = append(v, row[c*(w.Cols/k[0])+p])
				}
			}
		}
		return encodeNumbers(t, v)
	}
	return nil
}

// shard deals the items out to files of at most limit bytes, an item never to two. A file
// is larger if a single item is.
func (p *plan) shard(limit int64) {
	file, used := 0, int64(0)
	for _, it := range p.items {
		if n := it.size(); used > 0 && used+n > limit {
			file, used = file+1, n
		} else {
			used += n
		}
		it.file = file
	}
	p.files = []string{"model.safetensors"}
	if file == 0 {
		return
	}
	p.files = make([]string, file+1)
	for i := range p.files {
		p.files[i] = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, file+1)
	}
}

// size is the bytes of all items.
func (p *plan) size() int64 {
	n := int64(0)
	for _, it := range p.items {
		n += it.size()
	}
	return n
}
