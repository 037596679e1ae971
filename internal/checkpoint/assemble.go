package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Mapping is a file of any format, mapped for reading where the system can.
type Mapping struct{ file *file }

// Map maps the file at path. The caller closes it, or gives it to Assemble.
func Map(path string) (*Mapping, error) {
	f, size, err := folder("").file(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	defer func() { _ = f.Close() }() // a mapping outlives its descriptor
	if size < 1 || int64(int(size)) != size {
		return nil, fmt.Errorf("checkpoint: %s: a file of %d bytes is too short for a model", path, size)
	}
	m, err := newMapped(filepath.Base(path), f, int(size))
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", path, err)
	}
	return &Mapping{m}, nil
}

// Name is the last part of the file's path.
func (m *Mapping) Name() string { return m.file.name }

// Bytes is the whole file, read-only, until the mapping is closed.
func (m *Mapping) Bytes() []byte { return m.file.data }

// Release tells the kernel that b, a part of Bytes, is not needed in memory for now. It ignores other
// memory.
func (m *Mapping) Release(b []byte) {
	if m.file.contains(b) {
		adviseDrop(b)
	}
}

// Close unmaps the file.
func (m *Mapping) Close() error { return m.file.close() }

// Assembly is a checkpoint that is not a folder: the contents of its files, and functions that
// read its tensors.
type Assembly struct {
	Name   string // stands in messages
	Config []byte // the text of config.json
	// Texts are the other files of the folder by name. Each is made on demand.
	Texts map[string]func() ([]byte, error)
	// Metadata is the header metadata of each of Files.
	Metadata map[string]string
	// Files are the sources of tensors. The checkpoint closes them.
	Files   []*Mapping
	Tensors []Source
}

// Source is a tensor that is read on demand.
type Source struct {
	Decl
	File *Mapping
	// Read returns the tensor's bytes: a view of File, or new memory, which the
	// checkpoint does not keep. It may be called from several goroutines at once.
	Read func() ([]byte, error)
	// Blocks is the encoding, without Data, of a matrix in a block format, or a stack of them:
	// Type is U8 then, and the last dimension the bytes of a row. Nil: Type is the encoding.
	Blocks *dtype.Matrix
	// Factors are the Global of each matrix of a stack of NVFP4Blocks, or one for all. Nil: they are 1.
	Factors []float32
}

// Assemble opens a checkpoint whose tensors are read one by one, on demand. It
// closes the files of a if it fails.
func Assemble(a Assembly) (*Checkpoint, error) {
	c := &Checkpoint{Weights: newWeights(a.Name), source: assembled{a.Config, a.Texts}}
	for _, m := range a.Files {
		m.file.metadata = maps.Clone(a.Metadata)
		c.files = append(c.files, m.file)
	}
	err := c.readConfig()
	for i := range a.Tensors {
		if err == nil {
			err = c.addSource(&a.Tensors[i])
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// addSource makes a tensor known.
func (w *Weights) addSource(s *Source) error {
	size, ok := byteSize(s.Type, s.Shape)
	if !ok {
		return fmt.Errorf("checkpoint: tensor %q: shape %v is larger than any file", s.Name, s.Shape)
	}
	if _, ok := w.tensors[s.Name]; ok {
		return fmt.Errorf("checkpoint: %s has two tensors %q", w.name, s.Name)
	}
	w.tensors[s.Name] = &entry{
		name: s.Name, typ: s.Type, shape: slices.Clone(s.Shape), end: size, file: s.File.file, read: s.Read, blocks: s.Blocks, factors: s.Factors,
	}
	return nil
}

// load is the tensor's bytes, wherever they come from.
func (e *entry) load() ([]byte, error) {
	if e.read == nil {
		b := e.bytes()
		if e.file.mapped {
			adviseNeed(b)
		}
		return b, nil
	}
	b, err := e.read()
	if err == nil && len(b) != e.end-e.begin {
		err = fmt.Errorf("%d bytes were read, want %d", len(b), e.end-e.begin)
	}
	if err != nil {
		return nil, e.errorf("%w", err)
	}
	return b, nil
}

// assembled is the source of texts that are made on demand.
type assembled struct {
	config []byte
	texts  map[string]func() ([]byte, error)
}

func (a assembled) list() ([]string, error) {
	return append(slices.Sorted(maps.Keys(a.texts)), configFile), nil
}

func (a assembled) read(name string, limit int64) (b []byte, err error) {
	if text, ok := a.texts[name]; ok {
		b, err = text()
	} else if b = a.config; name != configFile {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if err == nil && int64(len(b)) > limit {
		err = tooLarge(int64(len(b)), limit)
	}
	return b, err
}

func (a assembled) open(name string) (*file, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
