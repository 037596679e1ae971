package golden

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
)

func TestLoadFixtures(t *testing.T) {
	sizes := map[string]struct{ cases, continuation, rows, vocab int }{
		"dense": {4, 48, 3, 512},
		"moe":   {4, 48, 3, 512},
		"tiny":  {8, 160, 1, 8192},
	}
	for _, name := range Names {
		t.Run("name="+name, func(t *testing.T) {
			f, want := Load(t, name), sizes[name]
			if len(f.Cases) != want.cases || f.MTPHidden != "post_norm" {
				t.Fatalf("%d cases fed %q, want %d fed post_norm", len(f.Cases), f.MTPHidden, want.cases)
			}
			for i, c := range f.Cases {
				n := len(c.Tokens)
				if n != len(c.Prompt)+want.continuation || !slices.Equal(c.Tokens[:len(c.Prompt)], c.Prompt) {
					t.Errorf("case %d: %d tokens do not continue a prompt of %d", i, n, len(c.Prompt))
				}
				if len(c.Argmax) != n || len(c.Margin) != n || len(c.Draft1) != n-1 || len(c.Draft2) != n-2 || len(c.Draft3) != n-3 {
					t.Errorf("case %d: rows of different lengths", i)
				}
				logits := f.Array(t, fmt.Sprintf("%d.logits_last", i))
				if !slices.Equal(logits.Shape, []int{want.rows, want.vocab}) {
					t.Fatalf("case %d: logits %v, want [%d %d]", i, logits.Shape, want.rows, want.vocab)
				}
				for row := range want.rows {
					if got, at := argmax(logits.Row(row)), len(c.Prompt)-want.rows+row; got != c.Argmax[at] {
						t.Errorf("case %d row %d: argmax of the logits %d, of the table %d", i, at, got, c.Argmax[at])
					}
				}
			}
		})
	}
}

// The text is greedy: each token of the continuation is the argmax before it.
func TestLoadFixturesAreGreedy(t *testing.T) {
	for _, name := range Names {
		for i, c := range Load(t, name).Cases {
			from := len(c.Prompt)
			if !slices.Equal(c.Tokens[from:], c.Argmax[from-1:len(c.Argmax)-1]) {
				t.Errorf("%s case %d: the continuation is not the argmax", name, i)
			}
		}
	}
}

func TestDirHoldsTheCheckpoint(t *testing.T) {
	for _, name := range Names {
		c, err := checkpoint.Open(Dir(t, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, tensor := range c.Tensors() {
			if tensor == "0.logits_last" {
				t.Errorf("%s: the reference's arrays are taken for weights", name)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWriteRoundTrip(t *testing.T) {
	for _, spec := range SpecCases() {
		c, err := checkpoint.Open(spec.Config.Checkpoint(t))
		if err != nil {
			t.Fatal(err)
		}
		var w Worst
		for _, want := range spec.Config.Tensors() {
			got, err := c.Tensor(want.Name)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Shape, want.Shape) {
				t.Errorf("%s: shape %v, want %v", want.Name, got.Shape, want.Shape)
			}
			values := make([]float32, len(want.Values))
			dtype.ToF32(values, got.Type, got.Data)
			w.Add(want.Name, values, want.Values)
		}
		w.Check(t, spec.Config.Name, 0)
		if unused := c.Unused(); len(unused) > 0 {
			t.Errorf("%s: tensors that were never written: %q", spec.Config.Name, unused)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

var compress = flag.Bool("pack", false, "replace each model.safetensors and golden.safetensors in testdata that is worth it by a compressed file")

// pack is the inverse of unpackBytes. Matches cost more than they save where bytes are as good as
// random, so each place has the better of two compressions.
func pack(t *testing.T, data []byte, width int) []byte {
	t.Helper()
	var packed []byte
	for place := range width {
		var plane []byte
		for i := place; i < len(data); i += width {
			plane = append(plane, data[i])
		}
		var best []byte
		for _, level := range []int{gzip.BestCompression, gzip.HuffmanOnly} {
			var out bytes.Buffer
			z, err := gzip.NewWriterLevel(&out, level)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := z.Write(plane); err != nil {
				t.Fatal(err)
			}
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
			if best == nil || out.Len() < len(best) {
				best = out.Bytes()
			}
		}
		packed = append(packed, best...)
	}
	return packed
}

func TestUnpackBytesInvertsPack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{0, 1, 2, 7, 4096, 100_003} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(rng.IntN(1 + i%4*85))
		}
		for _, width := range []int{1, 2, 4} {
			if got, err := unpackBytes(pack(t, data, width), width); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes by %d: they come back as %d: %v", n, width, len(got), err)
			}
		}
	}
	files, err := filepath.Glob("testdata/*/*.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		data := filetest.Read(t, name)
		width := dtype.F32.Size()
		if strings.HasPrefix(filepath.Base(name), "model.") {
			width = dtype.BF16.Size()
			if *compress {
				r, random := findRandom(t, data, 256)
				r.flip(data)
				filetest.Write(t, filepath.Join(filepath.Dir(name), "random.json"), random)
			}
		}
		packed := pack(t, data, width)
		if (len(packed)+4095)>>12 == (len(data)+4095)>>12 {
			continue
		}
		if !*compress {
			t.Errorf("%s takes %d bytes in place of %d: run go test ./internal/golden -pack", name, len(data), len(packed))
		} else if err := os.WriteFile(name+".gz", packed, 0o644); err != nil {
			t.Fatal(err)
		} else if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEditsChangeLittle checks that every edit changes its text, and keeps most of it.
func TestEditsChangeLittle(t *testing.T) {
	list := Edits(t)
	if len(list) != 10 {
		t.Errorf("%d edits, want 10", len(list))
	}
	for _, e := range list {
		before, kept := map[string]int{}, 0
		for _, word := range strings.Fields(e.Before) {
			before[word]++
		}
		words := strings.Fields(e.After)
		for _, word := range words {
			if before[word]--; before[word] >= 0 {
				kept++
			}
		}
		if e.Before == e.After || kept < len(words)*3/4 || e.Instruction == "" {
			t.Errorf("%s: %d of %d words are those of the text", e.Name, kept, len(words))
		}
	}
}
