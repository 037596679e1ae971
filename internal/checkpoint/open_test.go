package checkpoint

import (
	"bytes"
	_ "embed" // of this file
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
)

func TestOpenListsTensorsAndFiles(t *testing.T) {
	f := good(t)
	f["model-1.safetensors"] = encode(t, map[string]string{"format": "mlx", "quote": `"\n`},
		random("b", dtype.BF16, 4), random("a", dtype.F32, 2), random("forgotten by the index", dtype.U8))
	f["extra.safetensors"] = encode(t, nil, random("a", dtype.F32, 9)) // the index does not name it
	f["generation_config.json"] = `{"top_k":5}`
	f.both(t, func(t *testing.T, c *Checkpoint) {
		if got, want := c.Tensors(), []string{"a", "b", "c", "forgotten by the index"}; !slices.Equal(got, want) {
			t.Errorf("tensors %q, want %q", got, want)
		}
		if got, want := c.Files(), []string{"model-1.safetensors", "model-2.safetensors"}; !slices.Equal(got, want) {
			t.Errorf("files %q, want %q", got, want)
		}
		if m := c.Metadata("model-1.safetensors"); m["format"] != "mlx" || m["quote"] != `"\n` {
			t.Errorf("metadata %q", m)
		}
		if m := c.Metadata("absent"); m != nil {
			t.Errorf("metadata %q of a file that is not there", m)
		}
		if m := c.Metadata("model-2.safetensors"); m != nil {
			t.Errorf("metadata %q of a file that has none", m)
		}
		if string(c.Config()) != "{}" || string(c.generation) != `{"top_k":5}` {
			t.Errorf("config %q, generation config %q", c.Config(), c.generation)
		}
		x, err := c.Tensor("c")
		if err != nil {
			t.Fatal(err)
		}
		want := random("c", dtype.F32, 2, 3)
		if x.Name != "c" || x.File != "model-2.safetensors" || x.Type != dtype.F32 ||
			!slices.Equal(x.Shape, want.Shape) || !bytes.Equal(x.Data, want.data) {
			t.Errorf("tensor %+v, want %+v", x, want)
		}
		if s, err := c.Tensor("forgotten by the index"); err != nil || len(s.Shape) != 0 || len(s.Data) != 1 {
			t.Errorf("scalar %+v, %v", s, err)
		}
		_, err = c.Tensor("absent")
		contains(t, err, `"absent"`, "missing")
		if !errors.Is(err, ErrMissing) {
			t.Errorf("%v does not wrap ErrMissing", err)
		}
	})
}

func TestOpenFindsShardsWithoutIndex(t *testing.T) {
	a, b := encode(t, nil, random("a", dtype.U8, 1)), encode(t, nil, random("b", dtype.U8, 1))
	for _, c := range []struct {
		name  string
		files files
		want  []string
	}{
		{"single", files{"model.safetensors": a, "golden.safetensors": a}, []string{"model.safetensors"}},
		{"several", files{"model-00002-of-00002.safetensors": b, "model-00001-of-00002.safetensors": a}, []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}},
		{"other names", files{"weights.1.safetensors": b, "weights.0.safetensors": a, ".hidden.safetensors": a}, []string{"weights.0.safetensors", "weights.1.safetensors"}},
		{"with sidecar", files{"model.safetensors": a, "model-mtp.safetensors": b}, []string{"model.safetensors"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.files.with(files{"config.json": "{}"}).both(t, func(t *testing.T, k *Checkpoint) {
				if got := k.Files(); !slices.Equal(got, c.want) {
					t.Errorf("files %q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestOpenSetsSidecarsApart(t *testing.T) {
	head := encode(t, nil, random("mtp.fc.weight", dtype.BF16, 4, 8))
	f := files{
		"config.json":             "{}",
		"model.safetensors":       encode(t, nil, random("mtp.fc.weight", dtype.F32, 4, 8)),
		"mtp.safetensors":         head,
		"model-mtp.safetensors":   head,
		"mtp/weights.safetensors": head,
		"mtp/manifest.json":       `{"artifact_schema_version":1}`,
	}
	f.both(t, func(t *testing.T, c *Checkpoint) {
		if m, err := c.Matrix("mtp.fc", 4, 8); err != nil || m.Type != dtype.F32 {
			t.Errorf("%v, %v: want the main tensor", m.Type, err)
		}
		if len(c.Sidecars) != 3 {
			t.Fatalf("%d sidecars, want 3", len(c.Sidecars))
		}
		for i, s := range c.Sidecars {
			if s.File != sidecarNames[i] || !slices.Equal(s.Files(), sidecarNames[i:i+1]) {
				t.Errorf("sidecar %d is %s", i, s.File)
			}
			if got, want := string(s.Manifest), map[int]string{2: f["mtp/manifest.json"]}[i]; got != want {
				t.Errorf("%s: manifest %q, want %q", s.File, got, want)
			}
			if unused := s.Unused(); len(unused) != 1 {
				t.Errorf("%s: unused %q", s.File, unused)
			}
			if m, err := s.Matrix("mtp.fc", 4, 8); err != nil || m.Type != dtype.BF16 {
				t.Errorf("%s: %v, %v", s.File, m.Type, err)
			}
		}
	})
	f["model.safetensors.index.json"] = `{"weight_map":{"mtp.fc.weight":"mtp.safetensors"}}`
	f.both(t, func(t *testing.T, c *Checkpoint) {
		if !slices.Equal(c.Files(), []string{"mtp.safetensors"}) || len(c.Sidecars) != 2 {
			t.Errorf("files %q and %d sidecars: what the index names is not a sidecar", c.Files(), len(c.Sidecars))
		}
	})
}

func TestUnusedListsUnreadTensors(t *testing.T) {
	c := single(t, "{}", random("a.weight", dtype.F32, 2, 2), random("b", dtype.F32, 3), random("vision.x", dtype.F32, 1),
		random("vision.y", dtype.F32, 1), random("q.weight", dtype.U32, 1, 4), random("q.scales", dtype.F16, 1, 1),
		random("q.biases", dtype.F16, 1, 1), random("odd", dtype.F32, 1), random("t", dtype.F32, 1))
	if got := c.Unused(); len(got) != 9 {
		t.Fatalf("unused %q before any use", got)
	}
	var wait sync.WaitGroup // loading is done by several goroutines
	for _, f := range []func() error{
		func() error { _, err := c.Matrix("a", 2, 2); return err },
		func() error { _, err := c.Vector("b", 3); return err },
		func() error { _, err := c.Matrix("q", 1, 32); return err },
		func() error { _, err := c.Tensor("t"); return err },
	} {
		wait.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	c.Has("odd")
	if n := c.Skip(func(name string) bool { return strings.HasPrefix(name, "vision.") }); n != 2 {
		t.Errorf("skipped %d, want 2", n)
	}
	if got := c.Unused(); !slices.Equal(got, []string{"odd"}) {
		t.Errorf("unused %q, want odd", got)
	}
}

func TestOpenFilesCopiesNothing(t *testing.T) {
	f := files{"config.json": "{}", "model.safetensors": encode(t, nil, random("a.weight", dtype.BF16, 1024, 1024))}
	n := allocated(func() {
		c, err := OpenFiles("test", f)
		if err != nil {
			t.Error(err)
			return
		}
		m, err := c.Matrix("a", 1024, 1024)
		if err != nil {
			t.Error(err)
		}
		c.ReleaseMatrix(m) // nothing to do, and must not touch the string
		x, err := c.Tensor("a.weight")
		if err != nil {
			t.Error(err)
		}
		c.Release(x)
	})
	if n > 64<<10 {
		t.Errorf("took %d bytes of memory", n)
	}
}

//go:embed open_test.go
var program string

// TestReleaseKnowsTheProgram drops constants of the program, which come back, and neither strings
// on the heap nor variables.
func TestReleaseKnowsTheProgram(t *testing.T) {
	view := func(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
	if _, err := os.Stat("/proc/self/maps"); inProgram(view(program)) != (err == nil) {
		t.Errorf("the program's own text: %v", inProgram(view(program)))
	}
	variable := strings.Clone(program)
	if inProgram(view(variable)) || inProgram(nil) {
		t.Error("memory of the heap is taken for the program's")
	}
	if inProgram(view(program)) {
		adviseDrop(view(program))
	}
	if program != variable {
		t.Error("the program has changed")
	}
}

// resident is the bytes of files that the process has in memory. Memory that Go's heap returns
// meanwhile does not count.
func resident(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("no /proc here:", err)
	}
	n, err := strconv.Atoi(strings.Fields(string(b))[2])
	if err != nil {
		t.Fatal(err)
	}
	return n * os.Getpagesize()
}

func TestReleaseGivesMemoryBack(t *testing.T) {
	const rows, cols = 4096, 8192 // 32 MB of codes
	dir := files{"config.json": "{}"}.write(t)
	out, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	decls := []Decl{{"a.weight", dtype.U32, []int{rows, cols / 4}}, {"a.scales", dtype.BF16, []int{rows, cols / 64}}, {"a.biases", dtype.BF16, []int{rows, cols / 64}}}
	header, err := FileHeader(decls, nil)
	if err != nil {
		t.Fatal(err)
	}
	size := len(header)
	for _, d := range decls {
		n, _ := byteSize(d.Type, d.Shape)
		size += n
	}
	_, err = out.Write(header)
	if _, zeroed := io.CopyN(out, zeros{}, int64(size-len(header))); err != nil || zeroed != nil {
		t.Fatal(err, zeroed)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, c)
	m, err := c.Matrix("a", rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	touch := func() (sum int) {
		for _, b := range [][]byte{m.Data, m.Scales, m.Biases} {
			for i := 0; i < len(b); i += 1024 {
				sum += int(b[i])
			}
		}
		return sum
	}
	before := resident(t)
	sum := touch()
	full := resident(t) - before
	c.ReleaseMatrix(m)
	left := resident(t) - before
	t.Logf("%d bytes: %d resident when read, %d after release", m.Bytes(), full, left)
	if size := int(m.Bytes()); full < size*3/4 || left > size/4 {
		t.Errorf("%d bytes: %d resident when read, %d after release", size, full, left)
	}
	if again := touch(); again != sum {
		t.Errorf("contents changed: %d, then %d", sum, again)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestOpenWeightsReadsOneFile(t *testing.T) {
	path := filetest.Write(t, filepath.Join(t.TempDir(), "x.safetensors"), encode(t, nil, numbers("v", dtype.F32, []int{2, 2}, 1, 2, 3, 4)))
	w, err := OpenWeights(path)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := w.Vector("v", 4); err != nil || !slices.Equal(v, []float32{1, 2, 3, 4}) {
		t.Errorf("%v, %v", v, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Tensor("v"); !errors.Is(err, ErrMissing) {
		t.Errorf("after Close: %v", err)
	}
	_, err = OpenWeights(path + ".absent")
	contains(t, err, "absent")
}

func TestVectorChecksTypeAndSize(t *testing.T) {
	c := single(t, "{}", numbers("f32", dtype.F32, []int{3}, 1, -2, 3), numbers("f16", dtype.F16, []int{1, 3, 1}, 1, -2, 3),
		numbers("bf16", dtype.BF16, []int{3}, 1, -2, 3), random("f64", dtype.F64, 3), random("i32", dtype.I32, 3),
		tensor{Decl: Decl{"none", dtype.F32, []int{0, 1 << 40}}})
	for _, name := range []string{"f32", "f16", "bf16"} {
		if v, err := c.Vector(name, 3); err != nil || !slices.Equal(v, []float32{1, -2, 3}) {
			t.Errorf("%s: %v, %v", name, v, err)
		}
		_, err := c.Vector(name, 4)
		contains(t, err, "model.safetensors", strconv.Quote(name), "want 4 numbers")
	}
	for _, name := range []string{"f64", "i32"} {
		_, err := c.Vector(name, 3)
		contains(t, err, strconv.Quote(name), "want F32, F16 or BF16")
	}
	_, err := c.Vector("none", 1<<40)
	contains(t, err, "[0, 1099511627776]", "want 1099511627776 numbers")
	_, err = c.Vector("absent", 3)
	contains(t, err, `"absent"`)
}

// BenchmarkOpen opens a folder the size of a large mixture of experts: many tensors.
func BenchmarkOpen(b *testing.B) {
	const n = 20000
	tensors := make([]tensor, n)
	var index strings.Builder
	for i := range tensors {
		name := fmt.Sprintf("model.language_model.layers.%d.mlp.experts.%d.down_proj.weight", i/512, i%512)
		tensors[i] = tensor{Decl{name, dtype.U8, []int{1, 1}}, []byte{0}}
		fmt.Fprintf(&index, ",%q:\"model.safetensors\"", name)
	}
	f := files{"config.json": "{}", "model.safetensors": encode(b, nil, tensors...)}
	f[IndexFile] = `{"weight_map":{` + index.String()[1:] + `}}`
	dir := f.write(b)
	b.SetBytes(int64(len(f["model.safetensors"]) + len(f[IndexFile])))
	for b.Loop() {
		c, err := Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		closed(b, c)
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "tensors/s")
}
