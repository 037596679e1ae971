package vulkan

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/conformance"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
	"github.com/foretoken/foretoken/internal/dtype"
)

// subject is what a proof is about: another one needs another proof.
type subject struct {
	Device     string `json:"device"`
	Vendor     uint32 `json:"vendor"`
	Product    uint32 `json:"product"`
	Driver     string `json:"driver"`
	Version    uint32 `json:"version"`
	UUID       string `json:"uuid"`
	Kernels    string `json:"kernels"`    // digest of the modules and of the code that launches them
	Arithmetic string `json:"arithmetic"` // of the portable code
	Suite      string `json:"suite"`      // version of the checks
}

// proof says that a device has computed with the bits of the CPU, or what it has computed otherwise.
type proof struct {
	Of      subject   `json:"of"`
	Level   Level     `json:"level"`
	Date    time.Time `json:"date"`
	Refused string    `json:"refused,omitempty"`
	Shapes  []string  `json:"shapes"` // of weights whose products were compared
	Sum     string    `json:"sum"`    // digest of all that

	file string // "": it is not kept
}

// maxProof is more bytes than a proof has.
const maxProof = 1 << 20

// sources is the code of the backend: what selects kernels, and lays out what they read.
//
//go:embed *.go driver/*.go spirv/*.go
var sources embed.FS

// subjectOf is the subject of a device's proof.
func subjectOf(info *driver.Info, kernels fs.FS) (subject, error) {
	sum, err := kernelsDigest(kernels, sources, gpu.Sources)
	return subject{info.Name, info.Vendor, info.Product, info.Driver, info.Version, fmt.Sprintf("%x", info.UUID), sum, backend.Arithmetic(), conformance.Version}, err
}

// kernelsDigest is the digest of the modules of kernels and of code, without its tests.
func kernelsDigest(kernels fs.FS, code ...fs.FS) (string, error) {
	data, err := fs.ReadFile(kernels, kernelsFile)
	h := sha256.New()
	_, _ = h.Write(data)
	for i, files := range code {
		err = errors.Join(err, fs.WalkDir(files, ".", func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			data, err := fs.ReadFile(files, name)
			_, _ = fmt.Fprintf(h, "%d %s %x\n", i, name, sha256.Sum256(data))
			return err
		}))
	}
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

// digest is Sum of the other fields.
func (p proof) digest() string {
	p.Sum = ""
	data, _ := json.Marshal(&p) // of strings and numbers
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// readProof returns the proof that a folder has for a subject. The error says that there is none, or why it does not hold.
func readProof(folder string, of subject) (*proof, error) {
	p := &proof{Of: of}
	if folder == "" {
		return p, errors.New("a folder for it is not known")
	}
	name := sha256.Sum256(fmt.Appendf(nil, "%s %x %x", of.Device, of.Vendor, of.Product))
	file := filepath.Join(folder, fmt.Sprintf("vulkan-%x.json", name[:8]))
	p.file = file
	info, err := os.Stat(file)
	if err != nil {
		return p, errors.New("the device was not proven before")
	}
	stored, damaged := &proof{}, fmt.Errorf("%s is damaged", file)
	if info.Size() > maxProof {
		return p, damaged
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return p, err
	}
	if json.Unmarshal(data, stored) != nil || stored.Sum != stored.digest() {
		return p, damaged
	}
	for _, field := range []struct{ what, was, is string }{
		{"driver", fmt.Sprintf("%s (%x, %s)", stored.Of.Driver, stored.Of.Version, stored.Of.UUID), fmt.Sprintf("%s (%x, %s)", of.Driver, of.Version, of.UUID)},
		{"kernels", stored.Of.Kernels, of.Kernels},
		{"arithmetic", stored.Of.Arithmetic, of.Arithmetic},
		{"conformance suite", stored.Of.Suite, of.Suite},
	} {
		if field.was != field.is {
			return p, fmt.Errorf("the %s changed from %s to %s", field.what, field.was, field.is)
		}
	}
	if stored.Of != of {
		return p, damaged
	}
	stored.file = file
	return stored, nil
}

// write keeps a proof. A proof that cannot be kept is made again by the next process.
func (p *proof) write() error {
	if p.file == "" {
		return nil
	}
	p.Sum = p.digest()
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.file), 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(p.file), ".vulkan-*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), p.file)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // err came first
	}
	return err
}

// holds is nil, or the error of a device that was refused.
func (p *proof) holds() error {
	if p.Refused == "" {
		return nil
	}
	again := ""
	if p.file != "" {
		again = "; delete " + p.file + " to try again"
	}
	return fmt.Errorf("refused on %s: %s%s", p.Date.Format(time.DateOnly), p.Refused, again)
}

// proven are the checks of a proof: all but those of errors.
func proven() []string {
	return slices.DeleteFunc(conformance.Names(false), func(name string) bool { return name == "errors" })
}

// prove sets the level by the proof that is kept. If there is none that holds, it makes one: of the levels that the probe finds exact, the
// first whose kernels have the bits of the CPU. An error says what the device computes otherwise.
func (b *Backend) prove(levels []Level) error {
	of, err := subjectOf(&b.info, b.opts.Kernels)
	if err != nil {
		return err
	}
	kept, none := readProof(b.opts.Proofs, of)
	if none == nil {
		b.proof = kept
		b.setLevel(kept.Level)
		return kept.holds()
	}
	host, err := backend.OpenHost(backend.Options{Log: b.opts.Log})
	if err != nil {
		return err
	}
	defer host.Close() //nolint:errcheck // nothing is left in it
	b.opts.Log.Info("vulkan: comparing the kernels with the CPU, once for each version of the driver", "device", b.info.Name, "reason", none)
	start := time.Now()
	refused := b.attempt(levels, host)
	if refused != nil && !strings.HasPrefix(refused.Error(), others) {
		return refused // it says nothing about results
	}
	kept.Date, kept.Level = time.Now().UTC().Truncate(time.Second), b.opts.Level
	if refused != nil {
		kept.Refused = refused.Error()
	}
	b.opts.Log.Info("vulkan: compared the kernels with the CPU", "device", b.info.Name, "level", kept.Level, "seconds", time.Since(start).Seconds(), "refused", kept.Refused)
	b.proof = kept
	b.keepProof()
	return kept.holds()
}

// keepProof writes the proof.
func (b *Backend) keepProof() {
	if err := b.proof.write(); err != nil {
		b.opts.Log.Warn("vulkan: the proof of the device cannot be kept, and will be made again", "error", err)
	}
}

// attempt tries levels, nil: all, until the kernels of one have the bits of a host.
func (b *Backend) attempt(levels []Level, host backend.Backend) error {
	if levels == nil {
		levels = cheapest
	}
	var wrong []string
	a, x, c := operands(probeOperands)
	for _, level := range levels {
		what, err := b.tryLevel(level, a, x, c)
		if err != nil {
			return err
		}
		if what == "" {
			found, err := b.conform(host)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return nil
			}
			if i := slices.IndexFunc(found, full); i >= 0 {
				return found[i].Err // another process may have the memory
			}
			what = found[0].String()
		}
		b.opts.Log.Info("vulkan: a level of the arithmetic is not exact", "device", b.info.Name, "level", level, "reason", what)
		wrong = append(wrong, fmt.Sprintf("level %d: %s", level, what))
	}
	return errors.New(others + strings.Join(wrong, "; "))
}

// full reports whether memory was missing for a check.
func full(f conformance.Finding) bool { return f.Err != nil && (source{}).Full(f.Err) }

// provers is how many backends of a device make its proof together.
const provers = 8

// conform runs the checks of a proof.
func (b *Backend) conform(host backend.Backend) ([]conformance.Finding, error) {
	defer b.spoils()()
	basis := conformance.Names(true)
	found := conformance.New(host, true).Only(basis...).Check(b)
	if err := b.wait(); err != nil || len(found) > 0 {
		return found, err
	}
	return b.share(host, slices.DeleteFunc(proven(), func(name string) bool { return slices.Contains(basis, name) }))
}

// together groups checks that use the same kernels, and have the same first word. Those that take long are first.
func together(names []string) (parts [][]string) {
	for _, name := range names {
		word, _, _ := strings.Cut(name, " ")
		i := slices.IndexFunc(parts, func(p []string) bool { return strings.HasPrefix(p[0]+" ", word+" ") })
		if i < 0 {
			parts = append(parts, []string{name})
		} else {
			parts[i] = append(parts[i], name)
		}
	}
	long := []string{"GLU", "Experts", "DeltaNet", "Attend", "MatMul"}
	slices.SortStableFunc(parts, func(x, y []string) int { return cmp.Compare(slices.Index(long, y[0]), slices.Index(long, x[0])) })
	return parts
}

// share runs checks. Most of the time is for compiling kernels, which takes a thread: other backends of the device run some of them.
func (b *Backend) share(host backend.Backend, names []string) (found []conformance.Finding, err error) {
	parts := together(names)
	workers := []*Backend{b}
	for b.again != nil && len(workers) < min(provers, runtime.GOMAXPROCS(0)) {
		w, err := b.again()
		if err != nil {
			b.opts.Log.Debug("vulkan: fewer backends make the proof", "error", err)
			break
		}
		workers = append(workers, w)
	}
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		left [][]string // by others, which may have less memory than one alone
	)
	take := func() (p []string) { // the next part, unless it is known that the kernels are wrong
		mu.Lock()
		defer mu.Unlock()
		if len(parts) > 0 && err == nil && len(found) == 0 {
			p, parts = parts[0], parts[1:]
		}
		return p
	}
	check := func(w *Backend, host backend.Backend, p []string, alone bool) {
		wrong := conformance.New(host, true).Only(p...).Check(w)
		failed := w.wait()
		mu.Lock()
		defer mu.Unlock()
		if !alone && (failed != nil || slices.ContainsFunc(wrong, full)) {
			left = append(left, p)
			return
		}
		found, err = append(found, wrong...), errors.Join(err, failed)
	}
	for _, w := range workers[1:] {
		all.Go(func() {
			defer func() { _ = w.Close() }() // what it has compared holds
			w.spoils()
			own, failed := backend.OpenHost(backend.Options{Threads: 1, Log: b.opts.Log})
			if failed != nil {
				return
			}
			defer func() { _ = own.Close() }()
			for p := take(); p != nil && w.err == nil; p = take() {
				check(w, own, p, false)
			}
		})
	}
	for p := take(); p != nil; p = take() {
		check(b, host, p, true)
	}
	all.Wait()
	parts = left
	for p := take(); p != nil; p = take() {
		check(b, host, p, true)
	}
	return found, err
}

// proofRows are the rows of the products that a proof compares: some for each kernel, and for each tile of many rows.
var proofRows = []struct{ rows, tile int }{{1, 0}, {2, 0}, {4, 0}, {8, 0}, {9, 3}, {33, 2}, {65, 1}}

// proveShape compares products of a weight that was loaded with those of the host, unless weights of its format and shape were compared
// before, for the first, middle and last outputs.
func (b *Backend) proveShape(w *weight, c backend.Compute, m *dtype.Matrix) error {
	if b.proof == nil || w.Rows() == 0 || w.Cols() == 0 {
		return nil
	}
	layout := sha256.Sum256(fmt.Appendf(nil, "%+v", w.l))
	shape := fmt.Sprintf("%dx%d %s %x", w.Rows(), w.Cols(), c, layout[:4])
	byMatrices := fmt.Sprintf("%s by matrices of %d", shape, b.matrix)
	has := func(shape string) bool { return slices.Contains(b.proof.Shapes, shape) }
	if has(byMatrices) || !has(shape) {
		b.compileMatrices(w)
	}
	switch {
	case b.cooperates(w) && has(byMatrices):
		return nil
	case has(shape): // there are no matrices, or they were wrong
		w.dots = true
		return nil
	}
	host, err := backend.OpenHost(backend.Options{Log: b.opts.Log})
	if err != nil {
		return err
	}
	defer host.Close() //nolint:errcheck // nothing is left in it
	own, err := host.Load(c, *m)
	if err != nil {
		return err
	}
	differs, err := b.differs(w, shape, host, own)
	if err == nil && differs != "" && b.cooperates(w) {
		b.withoutMatrices(w, differs)
		differs, err = b.differs(w, shape, host, own)
	}
	if err != nil {
		return err
	}
	if differs != "" {
		return fmt.Errorf("vulkan: %s: %s: use --device cpu, and report it with the output of 'foretoken devices'", b.info.Name, differs)
	}
	if b.cooperates(w) {
		shape = byMatrices
	}
	b.proof.Shapes = append(b.proof.Shapes, shape)
	b.keepProof()
	return nil
}

// differs says in what products of a weight differ from those of the host's, or "".
func (b *Backend) differs(w *weight, shape string, host backend.Backend, own backend.Weight) (string, error) {
	blocks := (w.Rows() + backend.RowBlock - 1) / backend.RowBlock
	only := slices.Compact([]int32{0, int32(blocks / 2), int32(blocks - 1)})
	defer func() { b.tried = 0 }()
	defer b.spoils()()
	for _, k := range proofRows {
		rows := k.rows
		b.tried = k.tile
		got, err := productOf(b, w, rows, only)
		if err != nil {
			return "", err
		}
		want, err := productOf(host, own, rows, only)
		if err != nil {
			return "", err
		}
		if i := dtype.Differ(got, want); i >= 0 {
			return fmt.Sprintf("a product of %d rows with a weight of %s differs from the CPU's in output %d: %08x, want %08x", rows, shape, i, got[4*i:4*i+4], want[4*i:4*i+4]), nil
		}
	}
	return "", nil
}

// productOf is the bytes of a product with numbers that are the same on every device.
func productOf(b backend.Backend, w backend.Weight, rows int, only []int32) (out []byte, err error) {
	var made []backend.Tensor
	defer func() {
		for _, t := range made {
			b.Free(t)
		}
	}()
	alloc := func(rows, cols int) backend.Tensor {
		t, failed := b.Alloc(dtype.F32, rows, cols)
		if err = errors.Join(err, failed); failed == nil {
			made = append(made, t)
		}
		return t
	}
	rng := rand.New(rand.NewPCG(uint64(w.Rows()), uint64(w.Cols())))
	random := func(rows, cols int) backend.Tensor {
		t, data := alloc(rows, cols), make([]float32, rows*cols)
		for i := range data {
			data[i] = float32(rng.NormFloat64())
		}
		if err == nil {
			err = b.Write(t, data)
		}
		return t
	}
	cols := w.Cols()
	x, gain, dst := random(rows, cols), random(1, cols), alloc(rows, w.Rows())
	batch := []backend.Seq{{N: rows}}
	var layer *backend.DeltaNet
	var qkv, mixed backend.Tensor
	const keys, values = 32, 128 // numbers of a head
	if heads := cols / values; rows == 4 && cols%values == 0 {
		layer = &backend.DeltaNet{KeyHeads: 1, ValueHeads: heads, KeyDim: keys, ValueDim: values, Kernel: 4, Eps: 1e-6}
		all := layer.Channels()
		qkv, mixed = random(rows, all), alloc(rows, cols)
		layer.Conv, layer.Norm, layer.DecayRate, layer.DecayBias = random(4, all), gain.ColRange(0, values), gain.ColRange(0, heads), gain.ColRange(0, heads)
		batch[0].Delta = []backend.Recurrent{{State: random(heads*keys, values), Tail: random(4, all), Keys: random(1, keys), Deltas: random(1, cols), Decays: random(1, heads)}}
	}
	if err != nil {
		return nil, err
	}
	b.Pass(backend.Pass{Of: w, Only: only, Batch: batch}, func() {
		switch { // variants that quantize the rows
		case rows == 1:
			b.RMSNorm(x, x, gain, 1e-6)
		case rows == 2:
			b.GLU(x, x, x, backend.SiLU)
		case layer != nil:
			b.DeltaNet(mixed, layer, backend.Place{}, backend.DeltaInput{QKV: qkv, Z: x, B: x.ColRange(0, layer.ValueHeads), A: x.ColRange(0, layer.ValueHeads)}, batch)
			x = mixed
		}
		b.MatMul(x, backend.Product{Dst: dst, W: w, Only: only})
	})
	out = make([]byte, 4*rows*w.Rows())
	return out, b.ReadBytes(out, dst)
}

// described is the state of a device's proof, for people.
func described(info *driver.Info, kernels fs.FS, folder string) (text string, refused error) {
	of, err := subjectOf(info, kernels)
	if err != nil {
		return err.Error(), nil
	}
	p, none := readProof(folder, of)
	if none != nil {
		return fmt.Sprintf("not proven: %v; the first use compares its kernels with the CPU", none), nil
	}
	if err := p.holds(); err != nil {
		return "", err
	}
	return fmt.Sprintf("bit-identical to the CPU at level %d, proven %s with %s; products of %d shapes", p.Level, p.Date.Format(time.DateOnly), cmp.Or(of.Driver, "an unnamed driver"), len(p.Shapes)), nil
}
