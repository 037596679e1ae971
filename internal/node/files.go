package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/models"
	"github.com/foretoken/foretoken/internal/rescue"
)

// files is the matrices of a checkpoint, by what a leader with the same files has of them: as its family's table
// of weights reads them. Their digests are computed when a leader asks for a matrix of their form, and kept.
type files struct {
	path    string
	index   string // file of the digests; "": they are not kept
	list    []*matrices
	known   map[remote.Digest]place
	at      *checkpoint.Checkpoint
	changed bool // digests were added to the index
	left    bool // they could not be read, and are not used

	// The weight that was read last: a leader asks for the matrices of a stack one by one.
	last  *matrices
	stack []dtype.Matrix
}

// matrices is a weight of a checkpoint, a matrix or a stack of them.
type matrices struct {
	weight  *weights.Weight
	forms   []dtype.Matrix  // without data
	digests []remote.Digest // nil: not known yet
	fresh   bool            // they were computed by this process
}

// place is matrix i of a weight.
type place struct {
	*matrices
	i int
}

// indexed is the file of an index.
type indexed struct {
	Version int
	Path    string
	Stamp   string            // of the checkpoint's files: sizes and times
	Digests map[string][]byte // by the weight's name, one after another
}

const indexVersion = 1

// openFiles opens a checkpoint, of which only headers are read.
func openFiles(path, folder string) (_ *files, err error) {
	c, err := models.Open(path, "")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	v, err := model.Inventory(c, weights.Whole, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	v.IncludeTower()
	f := &files{path: path, at: c, known: map[remote.Digest]place{}}
	for i := range v.Weights {
		w := &v.Weights[i]
		if !w.IsMatrix() {
			continue
		}
		forms, err := w.Stored()
		if err != nil {
			return nil, err
		}
		f.list = append(f.list, &matrices{weight: w, forms: forms})
	}
	if folder != "" {
		f.index = filepath.Join(folder, fileName(path)+".index")
		f.readIndex()
	}
	return f, nil
}

// readIndex takes what is known of the checkpoint's files. An index that is not theirs, or that cannot be read, is
// made again.
func (f *files) readIndex() {
	data, err := os.ReadFile(f.index)
	var x indexed
	if err != nil || json.Unmarshal(data, &x) != nil || x.Version != indexVersion || x.Path != f.path || x.Stamp != f.at.Stamp() {
		return
	}
	for _, m := range f.list {
		b := x.Digests[m.weight.Name]
		if len(b) != len(remote.Digest{})*len(m.forms) {
			continue
		}
		list := make([]remote.Digest, 0, len(m.forms))
		for d := range slices.Chunk(b, len(remote.Digest{})) {
			list = append(list, remote.Digest(d))
		}
		f.learn(m, list)
	}
}

// writeIndex keeps the digests for the next start.
func (f *files) writeIndex() error {
	if !f.changed || f.index == "" {
		return nil
	}
	x := indexed{Version: indexVersion, Path: f.path, Stamp: f.at.Stamp(), Digests: map[string][]byte{}}
	for _, m := range f.list {
		var b []byte
		for _, d := range m.digests {
			b = append(b, d[:]...)
		}
		if b != nil {
			x.Digests[m.weight.Name] = b
		}
	}
	err := writeFile(f.index, func(w *os.File) error { return json.NewEncoder(w).Encode(&x) })
	f.changed = f.changed && err != nil
	return err
}

// read is the matrices of a weight. They are valid as long as the files.
func (f *files) read(m *matrices) ([]dtype.Matrix, error) {
	if f.last == m {
		return f.stack, nil
	}
	f.release()
	if err := f.at.Unchanged(); err != nil {
		return nil, err
	}
	stack, err := m.weight.Matrices()
	if err != nil {
		return nil, err
	}
	f.last, f.stack = m, stack
	return stack, nil
}

// release lets the system drop the pages of the weight that was read last: the device has a copy.
func (f *files) release() {
	if f.last != nil {
		for i := range f.stack {
			f.last.weight.Release(f.stack[i])
		}
	}
	f.last, f.stack = nil, nil
}

// digest computes the digests of a weight, and returns how many bytes it has.
func (f *files) digest(m *matrices) (bytes int64, err error) {
	stack, err := f.read(m)
	if err != nil {
		return 0, err
	}
	list := make([]remote.Digest, len(stack))
	err = rescue.Deal(len(stack), 1, 1, func(from, to int) error {
		for i := from; i < to; i++ {
			list[i] = remote.DigestOf(&stack[i])
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	m.fresh, f.changed = true, true
	f.learn(m, list)
	for i := range stack {
		bytes += stack[i].Bytes()
	}
	return bytes, nil
}

// learn notes the digests of a weight. Of equal matrices one is enough.
func (f *files) learn(m *matrices, list []remote.Digest) {
	m.digests = list
	for i, d := range list {
		if _, ok := f.known[d]; !ok {
			f.known[d] = place{m, i}
		}
	}
}

// errDamaged is wrapped by the error for bytes that changed though the time of their file did not.
var errDamaged = errors.New("the file is damaged")

// matrix is the matrix at a place, which has a digest. Unless its digest has just been computed, it is
// computed again: bytes may have changed on the disk.
func (f *files) matrix(p place, d remote.Digest) (dtype.Matrix, error) {
	m, i := p.matrices, p.i
	stack, err := f.read(m)
	if err != nil {
		return dtype.Matrix{}, err
	}
	if !m.fresh && remote.DigestOf(&stack[i]) != d {
		file, tensor := m.weight.Place()
		return dtype.Matrix{}, fmt.Errorf("%s: tensor %s: its bytes are not those that were indexed, though the time of the file is: %w; restore it, or delete it and the leader sends its own", filepath.Join(f.path, file), tensor, errDamaged)
	}
	return stack[i], nil
}

// after are the weights with a matrix of a form, those behind last first.
func (f *files) after(last *matrices, form *dtype.Matrix) []*matrices {
	var list []*matrices
	begin := slices.Index(f.list, last) + 1
	for i := range f.list {
		if m := f.list[(begin+i)%len(f.list)]; slices.ContainsFunc(m.forms, func(x dtype.Matrix) bool { return alike(&x, form) }) {
			list = append(list, m)
		}
	}
	return list
}

// alike reports whether two matrices may have the same bytes, by their forms.
func alike(a, b *dtype.Matrix) bool {
	return a.Rows == b.Rows && a.Cols == b.Cols && a.Format == b.Format && a.Type == b.Type && a.Bits == b.Bits && a.Group == b.Group && a.ScaleType == b.ScaleType
}

func (f *files) close() error {
	f.release()
	return errors.Join(f.writeIndex(), f.at.Close())
}
