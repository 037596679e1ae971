package checkpoint

import (
	"bytes"
	"math"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

func TestFileHeaderMakesReadableFiles(t *testing.T) {
	tensors := []tensor{
		random(`quote " and \ and é`, dtype.BF16, 3, 5), random("scalar", dtype.F32), random("byte", dtype.U8, 1),
		{Decl: Decl{"empty", dtype.F32, []int{4, 0}}},
		random("odd", dtype.F64, 2, 1, 1),
	}
	for _, metadata := range []map[string]string{nil, {}, {"format": "mlx", "b": "", "<&>": "\x00"}} {
		text := encode(t, metadata, tensors...)
		if text != encode(t, metadata, tensors...) {
			t.Error("the same tensors give different files")
		}
		f := &file{data: []byte(text)}
		if err := f.parse(); err != nil {
			t.Fatal(err)
		}
		if len(f.entries) != len(tensors) || len(f.metadata) != len(metadata) {
			t.Fatalf("%d tensors and %d metadata, want %d and %d", len(f.entries), len(f.metadata), len(tensors), len(metadata))
		}
		for i, e := range f.entries {
			want := tensors[i]
			if e.name != want.Name || e.typ != want.Type || shapeText(e.shape) != shapeText(want.Shape) || !bytes.Equal(e.bytes(), want.data) {
				t.Errorf("tensor %d is %q %v %v", i, e.name, e.typ, e.shape)
			}
		}
		if f.entries[0].begin%dataAlign != 0 {
			t.Errorf("data begins at byte %d", f.entries[0].begin)
		}
		for k, v := range metadata {
			if f.metadata[k] != v {
				t.Errorf("metadata %q is %q, want %q", k, f.metadata[k], v)
			}
		}
	}
	f := &file{data: []byte(encode(t, nil))}
	if err := f.parse(); err != nil || len(f.entries) != 0 {
		t.Errorf("file of no tensors: %v, %v", f.entries, err)
	}
}

func TestFileHeaderRefuses(t *testing.T) {
	a, b := Decl{"a", dtype.U8, []int{2}}, Decl{"b", dtype.U8, []int{2}}
	for _, c := range []struct {
		name  string
		decls []Decl
		want  string
	}{
		{"twice", []Decl{a, a}, `"a" is declared twice`},
		{"metadata", []Decl{{"__metadata__", dtype.U8, nil}}, `"__metadata__" is declared twice`},
		{"type", []Decl{{"a", dtype.Invalid, nil}}, `unknown type "invalid"`},
		{"no type", []Decl{{"a", 99, nil}}, `unknown type "Type(99)"`},
		{"size", []Decl{{"a", dtype.F32, []int{math.MaxInt}}}, "too large"},
		{"sum", []Decl{{"a", dtype.U8, []int{math.MaxInt}}, b}, "too large"},
		{"negative", []Decl{{"a", dtype.F32, []int{-1}}}, "too large"},
		{"name", []Decl{{"\xff", dtype.U8, nil}}, "not UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := FileHeader(c.decls, nil)
			contains(t, err, c.want)
		})
	}
}
