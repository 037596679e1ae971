package checkpoint

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
)

// tensor is one to be written by a test.
type tensor struct {
	Decl
	data []byte
}

// random is a tensor of random bytes, or of ordinary numbers when the type is a float.
func random(name string, typ dtype.Type, shape ...int) tensor {
	n, ok := byteSize(typ, shape)
	if !ok {
		panic(fmt.Sprintf("shape %v", shape))
	}
	r := rand.New(rand.NewPCG(uint64(len(name)), uint64(n)))
	t := tensor{Decl{name, typ, shape}, make([]byte, n)}
	switch typ {
	case dtype.F32, dtype.F16, dtype.BF16:
		v := make([]float32, n/typ.Size())
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		dtype.FromF32(t.data, typ, v)
	default:
		for i := range t.data {
			t.data[i] = byte(r.Uint32() % 120) // no NaN in any 8-bit float
		}
	}
	return t
}

// numbers is a tensor of the given values.
func numbers(name string, typ dtype.Type, shape []int, values ...float32) tensor {
	t := tensor{Decl{name, typ, shape}, make([]byte, len(values)*typ.Size())}
	dtype.FromF32(t.data, typ, values)
	return t
}

// encode is a safetensors file of the tensors.
func encode(t testing.TB, metadata map[string]string, tensors ...tensor) string {
	t.Helper()
	decls := make([]Decl, len(tensors))
	for i, x := range tensors {
		decls[i] = x.Decl
	}
	text, err := FileHeader(decls, metadata)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tensors {
		text = append(text, x.data...)
	}
	return string(text)
}

// raw is a file with the given header, valid or not, and n bytes of data.
func raw(header string, n int) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + strings.Repeat("x", n)
}

// files are the contents of a model folder.
type files map[string]string

// with is the folder with some files replaced.
func (f files) with(more files) files {
	g := maps.Clone(f)
	maps.Copy(g, more)
	return g
}

// write puts the files into a new folder and returns it.
func (f files) write(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range f {
		path := filepath.Join(dir, filepath.FromSlash(name))
		filetest.Write(t, path, text)
	}
	return dir
}

// both opens the files from a folder and from memory and calls use with each.
func (f files) both(t *testing.T, use func(t *testing.T, c *Checkpoint)) {
	t.Helper()
	for _, from := range []string{"folder", "memory"} {
		t.Run("from="+from, func(t *testing.T) {
			var c *Checkpoint
			var err error
			if from == "folder" {
				c, err = Open(f.write(t))
			} else {
				c, err = OpenFiles("test", f)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer closed(t, c)
			use(t, c)
		})
	}
}

// single opens a model of one file in memory.
func single(t *testing.T, config string, tensors ...tensor) *Checkpoint {
	t.Helper()
	c, err := OpenFiles("test", files{"config.json": config, "model.safetensors": encode(t, nil, tensors...)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func closed(t testing.TB, c *Checkpoint) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// allocated is the number of bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// contains checks that err is not nil and contains each of the words.
func contains(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
	if n := strings.Count(err.Error(), "checkpoint: "); n != 1 {
		t.Errorf("error %q names its package %d times", err, n)
	}
}
