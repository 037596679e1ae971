package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Limits on the claims of a file. Real ones have some fifty keys, and a few thousand
// tensors; with a tensor for every expert it would be a hundred thousand.
const (
	maxKeys    = 1 << 16
	maxTensors = 1 << 20
	maxDims    = 4
	maxAlign   = 1 << 20
)

// ProjectorArchitecture is the architecture of files that have a vision tower and no model.
const ProjectorArchitecture = "clip"

// File is an open GGUF file, or all parts of a split one. It does not change after Open,
// and may be used by several goroutines at once.
type File struct {
	// Parts are the mapped files in their order. Closing all of them closes the File.
	Parts []*checkpoint.Mapping
	// Tensors are in the order of the files.
	Tensors []*Tensor

	values map[string]value // of the first part
	names  map[string]*Tensor
}

// partName is how the parts of a split file are called.
var partName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// Open opens the file at path. If it is any part of a split file, it opens all of
// them, which must be in one folder. The caller closes it.
func Open(path string) (*File, error) {
	f := &File{names: map[string]*Tensor{}}
	err := f.open(path)
	if err == nil {
		err = f.factors()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *File) open(path string) error {
	name := partName.FindStringSubmatch(filepath.Base(path))
	if name == nil {
		if err := f.add(path, 0); err != nil {
			return err
		}
		return f.checkSplit(1)
	}
	count, _ := strconv.Atoi(name[3]) // five digits
	for i := range max(count, 1) {
		part := fmt.Sprintf("%s-%05d-of-%05d.gguf", name[1], i+1, count)
		err := f.add(filepath.Join(filepath.Dir(path), part), i)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("gguf: part %d of %d is missing: download it: %w", i+1, count, err)
		}
		if err != nil {
			return err
		}
	}
	return f.checkSplit(count)
}

// checkSplit compares the parts with the metadata of the first.
func (f *File) checkSplit(count int) error {
	for key, got := range map[string]int{"split.count": count, "split.tensors.count": len(f.Tensors)} {
		if !f.Has(key) {
			continue
		}
		want, err := f.Whole(key)
		if err != nil {
			return err
		}
		if want != got && want != 0 { // 0: not split
			return fmt.Errorf("gguf: %s: %s is %d, but there are %d: download all parts, and do not rename them",
				f.Parts[0].Name(), key, want, got)
		}
	}
	return nil
}

// add opens part i.
func (f *File) add(path string, i int) error {
	m, err := checkpoint.Map(path)
	if err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	f.Parts = append(f.Parts, m)
	p, err := parse(m.Bytes())
	if err != nil {
		return fmt.Errorf("gguf: %s: %w", m.Name(), err)
	}
	if i == 0 {
		f.values = p.values
	}
	for _, t := range p.tensors {
		if other, ok := f.names[t.Name]; ok {
			return fmt.Errorf("gguf: tensor %q is in both %s and %s", t.Name, other.File.Name(), m.Name())
		}
		t.File = m
		f.names[t.Name] = t
		f.Tensors = append(f.Tensors, t)
	}
	return nil
}

// factors finds the factors of NVFP4 tensors, which are tensors beside them, and removes these from the
// list, as well as the scales of activations, which are not used.
func (f *File) factors() error {
	var rest []*Tensor
	for _, t := range f.Tensors {
		module, isScale := strings.CutSuffix(t.Name, ".scale")
		if !isScale {
			module, _ = strings.CutSuffix(t.Name, ".input_scale")
		}
		of := f.names[module+".weight"]
		if module == t.Name || of == nil || of.Type.kind() == nil || of.Type.kind().format != dtype.NVFP4Blocks {
			rest = append(rest, t)
			continue
		}
		delete(f.names, t.Name)
		if !isScale {
			continue
		}
		var err error
		if of.Factors, err = t.numbers(); err != nil {
			return err
		}
		count := 1
		if len(of.Shape) > 2 {
			count = of.Shape[0]
		}
		if n := len(of.Factors); n != 1 && n != count {
			return fmt.Errorf("gguf: %s: tensor %q has %d numbers, want one, or one for each of %d matrices of %q", t.File.Name(), t.Name, n, count, of.Name)
		}
	}
	f.Tensors = rest
	return nil
}

// numbers are the numbers of a tensor of factors.
func (t *Tensor) numbers() ([]float32, error) {
	if t.Type != 0 || len(t.Shape) != 1 {
		return nil, fmt.Errorf("gguf: %s: tensor %q has the type %v and the shape %v, want F32 and one dimension", t.File.Name(), t.Name, t.Type, t.Shape)
	}
	x := make([]float32, t.Shape[0])
	dtype.ToF32(x, dtype.F32, t.data)
	for i, v := range x {
		if !(v >= -math.MaxFloat32 && v <= math.MaxFloat32) {
			return nil, fmt.Errorf("gguf: %s: tensor %q: number %d is %g: the file is damaged", t.File.Name(), t.Name, i, v)
		}
	}
	return x, nil
}

// Close unmaps all parts. Tensors, and matrices that view them, must not be used after
// it.
func (f *File) Close() error {
	errs := make([]error, len(f.Parts))
	for i, m := range f.Parts {
		errs[i] = m.Close()
	}
	return errors.Join(errs...)
}

// Tensor is the tensor of that name, or nil.
func (f *File) Tensor(name string) *Tensor { return f.names[name] }
