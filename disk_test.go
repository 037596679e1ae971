package foretoken

import (
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/models/tiny"
	"github.com/foretoken/foretoken/sample"
)

// cacheTest is a copy of the embedded model and a folder for its cache.
type cacheTest struct {
	dir string
	o   Options
}

func newCacheTest(t *testing.T) *cacheTest {
	t.Helper()
	x := &cacheTest{dir: t.TempDir()}
	for name, text := range tiny.Files() {
		filetest.Write(t, filepath.Join(x.dir, name), text)
	}
	x.o = Options{Log: silent, PrefixCache: PrefixCache{Dir: t.TempDir()}, Context: 512, KVMemory: 64 << 20, Speculation: Speculation{NoSelfTest: true}}
	return x
}

// cached opens the model, asks something, and returns how much of the prompt was known.
func (x *cacheTest) cached(t *testing.T) int {
	t.Helper()
	m, err := Open(t.Context(), x.dir, x.o)
	if err != nil {
		t.Fatal(err)
	}
	prompt := &Prompt{}
	for i := range int32(200) {
		prompt.IDs = append(prompt.IDs, 300+i*7%1000)
	}
	a := collect(t, m, Request{Prompt: prompt, MaxTokens: 2, IgnoreEnd: true, Sampling: &sample.Options{}})
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return a.Result.Cached
}

// TestDiskServesTheSameNetworkOnly changes one bit of a weight, one bit of the head, the compute type and
// the name of the arithmetic. After each change no stored prefix is served.
func TestDiskServesTheSameNetworkOnly(t *testing.T) {
	x := newCacheTest(t)
	if n := x.cached(t); n != 0 {
		t.Fatalf("%d tokens known of an empty folder", n)
	}
	if n := x.cached(t); n == 0 {
		t.Fatal("nothing known in the second process")
	}
	first := x.o
	for _, c := range []struct {
		name  string
		set   func()
		reset func()
	}{
		{"one bit of a shard", func() { x.flip(t, "model-00001-of-00002.safetensors") }, func() { x.flip(t, "model-00001-of-00002.safetensors") }},
		{"one bit of the other", func() { x.flip(t, "model-00002-of-00002.safetensors") }, func() { x.flip(t, "model-00002-of-00002.safetensors") }},
		{"float32", func() { x.o.Compute = Float32 }, nil},
		{"float32, 16 bits of keys", func() { x.o.Compute, x.o.KVBits = Float32, 16 }, nil},
		{"8 bits of keys", func() { x.o.KVBits = 8 }, nil},
		{"without the head", func() { x.o.Speculation.Depth = DepthOff }, nil},
		{"another arithmetic", func() { arithmetic = func() string { return "2" } }, func() { arithmetic = backend.Arithmetic }},
	} {
		c.set()
		if n := x.cached(t); n != 0 {
			t.Errorf("%s: %d tokens cached of another model", c.name, n)
		}
		if x.o = first; c.reset != nil {
			c.reset()
		}
	}
	if x.o.KVBits = 16; x.cached(t) == 0 { // which is what 0 stands for
		t.Error("nothing known of what was stored at first")
	}
}

// flip changes the lowest bit of a byte in the last third of a file, where the numbers are.
func (x *cacheTest) flip(t *testing.T, name string) {
	t.Helper()
	path := filepath.Join(x.dir, name)
	data := filetest.Read(t, path)
	data[len(data)*2/3] ^= 1
	filetest.Write(t, path, data)
}

// TestEmbeddedModelHasADisk: its weights are no files, and are hashed where they are.
func TestEmbeddedModelHasADisk(t *testing.T) {
	x := newCacheTest(t)
	x.dir = Tiny
	if n := x.cached(t); n != 0 {
		t.Fatalf("%d tokens known of an empty folder", n)
	}
	if n := x.cached(t); n == 0 {
		t.Error("nothing known in the second process")
	}
}
