package checkpoint

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
)

// mapped is a file of the given bytes.
func mapped(t *testing.T, data string) *Mapping {
	t.Helper()
	path := filetest.Write(t, filepath.Join(t.TempDir(), "weights.bin"), data)
	m, err := Map(path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAssembleReadsWhenAsked: a tensor is read at each request and not before,
// also as one of a matrix.
func TestAssembleReadsWhenAsked(t *testing.T) {
	m := mapped(t, strings.Repeat("\x00\x3f\x80\x3f", 64)) // bf16: 0.5, 1
	reads := 0
	q, err := dtype.Quantize(&dtype.Matrix{Rows: 1, Cols: 64, Type: dtype.BF16, Data: m.Bytes()[:128]}, 4, 32, dtype.F32)
	if err != nil {
		t.Fatal(err)
	}
	source := func(name string, typ dtype.Type, shape []int, b []byte) Source {
		return Source{Decl: Decl{name, typ, shape}, File: m, Read: func() ([]byte, error) { reads++; return b, nil }}
	}
	c, err := Assemble(Assembly{
		Name: "test", Config: []byte(`{"a":1}`), Metadata: map[string]string{"format": "x"}, Files: []*Mapping{m},
		Tensors: []Source{
			source("view.weight", dtype.BF16, []int{2, 1, 64}, m.Bytes()),
			source("own.weight", dtype.U32, []int{1, 8}, q.Data),
			source("own.scales", dtype.F32, []int{1, 2}, q.Scales),
			source("own.biases", dtype.F32, []int{1, 2}, q.Biases),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, c)
	if reads != 0 || string(c.Config()) != `{"a":1}` || c.Metadata("weights.bin")["format"] != "x" {
		t.Errorf("%d reads, config %s, metadata %v", reads, c.Config(), c.Metadata("weights.bin"))
	}
	if _, err := c.LookMatrix("own", 1, 64); err != nil || reads != 0 {
		t.Errorf("a look: %v, %d reads", err, reads)
	}
	if v, err := c.Vector("view.weight", 128); err != nil || !slices.Equal(v[:2], []float32{0.5, 1}) || reads != 1 {
		t.Errorf("vector %v, %v, %d reads", v, err, reads)
	}
	view, err := c.MatrixStack("view", 2, 1, 64)
	if err != nil || reads != 2 || !c.ReleaseMatrix(view[1]) {
		t.Errorf("a view is not known for one: %v, %d reads", err, reads)
	}
	own, err := c.Matrix("own", 1, 64)
	if err != nil || reads != 5 || c.ReleaseMatrix(own) {
		t.Errorf("memory of its own is taken for a view: %v, %d reads", err, reads)
	}
	if x, err := c.Tensor("own.scales"); err != nil || x.File != "weights.bin" || len(x.Data) != 8 {
		t.Errorf("tensor %+v, %v", x, err)
	}
	if _, err := c.ReadFile("tokenizer.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestAssembleKeepsBlocks: matrices in a block format are views of the file.
func TestAssembleKeepsBlocks(t *testing.T) {
	m := mapped(t, strings.Repeat("\x00\x3c0123456789abcdef", 2*3*2)) // Q4_0: two matrices, three rows, two blocks
	blocks := dtype.NewBlocks(dtype.Q4_0, 6, 64)
	reads := 0
	c, err := Assemble(Assembly{Name: "test", Config: []byte("{}"), Files: []*Mapping{m}, Tensors: []Source{{
		Decl: Decl{"x.weight", dtype.U8, []int{2, 3, 36}}, File: m, Blocks: &blocks,
		Read: func() ([]byte, error) { reads++; return m.Bytes(), nil },
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, c)
	if x, ok := c.Look("x.weight"); !ok || x.Blocks == nil || x.Blocks.Format != dtype.Q4_0 {
		t.Errorf("a look: %+v", x)
	}
	if ms, err := c.LookStack("x", 2, 3, 64); err != nil || reads != 0 || ms[1].Format != dtype.Q4_0 || ms[1].Rows != 3 {
		t.Errorf("a look: %+v, %v, %d reads", ms, err, reads)
	}
	ms, err := c.MatrixStack("x", 2, 3, 64)
	if err != nil || &ms[1].Data[0] != &m.Bytes()[3*36] || !c.ReleaseMatrix(ms[1]) {
		t.Errorf("%+v, %v: not a view", ms, err)
	}
	for _, e := range []struct {
		rows, cols int
		want       string
	}{{3, 32, "Q4_0 with 64 columns, want 32"}, {4, 64, "U8 of shape [2, 3, 36], want [2, 4, 36]"}} {
		if _, err := c.MatrixStack("x", 2, e.rows, e.cols); err == nil || !strings.Contains(err.Error(), e.want) {
			t.Errorf("%v, want %q", err, e.want)
		}
	}
}

func TestAssembleRefuses(t *testing.T) {
	source := func(name string, b []byte, err error, shape ...int) Source {
		return Source{Decl: Decl{name, dtype.F32, shape}, Read: func() ([]byte, error) { return b, err }}
	}
	for _, c := range []struct {
		name, config string
		tensors      []Source
		want         string
	}{
		{"config", "[]", nil, "config.json is not a JSON object"},
		{"twice", "{}", []Source{source("a", nil, nil, 1), source("a", nil, nil, 2)}, `test has two tensors "a"`},
		{"overflow", "{}", []Source{source("a", nil, nil, 1<<62, 4)}, `tensor "a": shape`},
		{"short", "{}", []Source{source("a", make([]byte, 3), nil, 1)}, `weights.bin: tensor "a": 3 bytes were read, want 4`},
		{"broken", "{}", []Source{source("a", nil, errors.New("it is broken"), 1)}, `tensor "a": it is broken`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := mapped(t, "x")
			for i := range c.tensors {
				c.tensors[i].File = m
			}
			k, err := Assemble(Assembly{Name: "test", Config: []byte(c.config), Files: []*Mapping{m}, Tensors: c.tensors})
			if err == nil {
				_, err = k.Vector("a", 1)
				closed(t, k)
			}
			contains(t, err, c.want)
			if m.Bytes() != nil {
				t.Error("the file is still open")
			}
		})
	}
	if _, err := Map(filepath.Join(t.TempDir(), "no")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
