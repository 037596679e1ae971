package gguf

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint/gguf/gguftest"
	"github.com/foretoken/foretoken/internal/filetest"
)

func TestMetadataIsTyped(t *testing.T) {
	for _, version := range []uint32{2, 3} {
		w := gguftest.File{Version: version, Align: 64}
		w.Set("text", "a\x00b")
		w.Set("yes", true)
		w.Set("u16", uint16(65535))
		w.Set("u32", uint32(1<<31))
		w.Set("i32", int32(-7))
		w.Set("u64", uint64(1)<<40)
		w.Set("f32", float32(1.5))
		w.Set("texts", []string{"", "x", "yz"})
		w.Set("list", []int32{3, -1})
		w.Set("bools", []bool{true, false})
		w.Set("none", []string{})
		f := opened(t, write(t, "m.gguf", w.Bytes()))
		for key, want := range map[string]int{"yes": 1, "u16": 65535, "u32": 1 << 31, "i32": -7, "u64": 1 << 40} {
			if n, err := f.Whole(key); err != nil || n != want {
				t.Errorf("%s: %d, %v", key, n, err)
			}
			if x, err := f.Number(key); err != nil || x != float64(want) {
				t.Errorf("%s: %g, %v", key, x, err)
			}
		}
		if x, err := f.Number("f32"); err != nil || x != 1.5 {
			t.Errorf("f32: %g, %v", x, err)
		}
		if s, err := f.Text("text"); err != nil || s != "a\x00b" {
			t.Errorf("text: %q, %v", s, err)
		}
		if s, err := f.Texts("texts"); err != nil || !slices.Equal(s, []string{"", "x", "yz"}) {
			t.Errorf("texts: %q, %v", s, err)
		}
		if s, err := f.Texts("none"); err != nil || len(s) != 0 {
			t.Errorf("none: %q, %v", s, err)
		}
		for key, want := range map[string][]int{"list": {3, -1}, "bools": {1, 0}, "i32": {-7}} {
			if n, err := f.Wholes(key); err != nil || !slices.Equal(n, want) {
				t.Errorf("%s: %v, %v", key, n, err)
			}
			for i, x := range want {
				if n, err := f.Numbers(key); err != nil || len(n) != len(want) || n[i] != float64(x) {
					t.Errorf("%s: %v, %v", key, n, err)
				}
			}
		}
		if x, err := f.Numbers("f32"); err != nil || !slices.Equal(x, []float64{1.5}) {
			t.Errorf("f32: %v, %v", x, err)
		}
		if !f.Has("text") || f.Has("txt") {
			t.Error("Has is wrong")
		}
	}
}

func TestMetadataRefusesOtherTypes(t *testing.T) {
	var w gguftest.File
	w.Set("text", "x")
	w.Set("texts", []string{"x"})
	w.Set("f32", float32(2))
	w.Set("list", []int32{1})
	f := opened(t, write(t, "m.gguf", w.Bytes()))
	refuse := func(what string, err error, want string) {
		if err == nil || !strings.HasPrefix(err.Error(), "gguf: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	for key, want := range map[string]string{"text": "not a number", "f32": "not a whole number", "list": "not a number", "no": `no key "no"`} {
		_, err := f.Whole(key)
		refuse("whole "+key, err, want)
	}
	for key, want := range map[string]string{"text": "not a number", "list": "not a number", "no": `no key "no"`} {
		_, err := f.Number(key)
		refuse("number "+key, err, want)
	}
	for key, want := range map[string]string{"texts": "an array, want a string", "f32": "not a string", "no": `no key "no"`} {
		_, err := f.Text(key)
		refuse("text "+key, err, want)
	}
	for key, want := range map[string]string{"text": "not numbers", "f32": "element 0 is not a whole number", "no": `no key "no"`} {
		_, err := f.Wholes(key)
		refuse("wholes "+key, err, want)
	}
	for key, want := range map[string]string{"text": "not numbers", "no": `no key "no"`} {
		_, err := f.Numbers(key)
		refuse("numbers "+key, err, want)
	}
}

// sample is a file with a few keys and tensors.
func sample() *gguftest.File {
	w := &gguftest.File{}
	w.Set("general.architecture", "none")
	w.Set("names", []string{"a", "bc"})
	for i := range 5 {
		v := make([]float32, 64)
		for j := range v {
			v[j] = float32(i*100 + j)
		}
		w.Add(fmt.Sprintf("t%d", i), []string{"F32", "F16", "Q8_0"}[i%3], []int{2, 32}, v)
	}
	return w
}

func TestSplitFilesOpenByAnyPart(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i, p := range sample().Split(3) {
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("m-%05d-of-00003.gguf", i+1)))
		filetest.Write(t, paths[i], p.Bytes())
	}
	for _, path := range paths {
		f := opened(t, path)
		if len(f.Parts) != 3 || len(f.Tensors) != 5 {
			t.Fatalf("%d parts, %d tensors", len(f.Parts), len(f.Tensors))
		}
		for i := range 5 {
			_, v := numbers(t, f.Tensor(fmt.Sprintf("t%d", i)))
			if d := v[5] - float32(i*100+5); d < -2 || d > 2 {
				t.Errorf("tensor %d: %g", i, v[5])
			}
		}
		if s, err := f.Text("general.architecture"); s != "none" {
			t.Errorf("%q, %v", s, err)
		}
	}
	refuse := func(path, want string) {
		t.Helper()
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	lone := filepath.Join(dir, "lone.gguf")
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(paths[1], lone)
	refuse(paths[0], "part 2 of 3 is missing: download it")
	move(lone, paths[1])
	move(paths[0], lone)
	refuse(lone, "download all parts, and do not rename them")
}

var little = binary.LittleEndian

// header is the start of a file of the given version that announces numbers of tensors and keys.
func header(version uint32, tensors, keys uint64) []byte {
	b := little.AppendUint32([]byte("GGUF"), version)
	return little.AppendUint64(little.AppendUint64(b, tensors), keys)
}

func str(b []byte, s string) []byte { return append(little.AppendUint64(b, uint64(len(s))), s...) }

// entry is an entry of the directory.
func entry(b []byte, name string, typ uint32, offset uint64, dims ...uint64) []byte {
	b = little.AppendUint32(str(b, name), uint32(len(dims)))
	for _, d := range dims {
		b = little.AppendUint64(b, d)
	}
	return little.AppendUint64(little.AppendUint32(b, typ), offset)
}

// hostile are files that must be refused, and a word of why.
func hostile() map[string]struct {
	data []byte
	want string
} {
	key := func(typ uint32, raw ...byte) []byte {
		return append(little.AppendUint32(str(header(3, 0, 1), "k"), typ), raw...)
	}
	array := func(elem uint32, n uint64) []byte {
		return key(9, little.AppendUint64(little.AppendUint32(nil, elem), n)...)
	}
	one := func(typ uint32, offset uint64, dims ...uint64) []byte {
		return append(entry(header(3, 1, 0), "t", typ, offset, dims...), make([]byte, 256)...)
	}
	huge := uint64(1) << 63
	whole := sample().Bytes()
	aligned := func(n uint32) []byte {
		b := str(header(3, 0, 1), "general.alignment")
		return little.AppendUint32(little.AppendUint32(b, 4), n)
	}
	return map[string]struct {
		data []byte
		want string
	}{
		"other magic":         {[]byte("GGML0123456789012345"), "not a GGUF file"},
		"version 1":           {header(1, 0, 0), "GGUF version 1, want 2 or 3"},
		"big-endian":          {header(3<<24, 0, 0), "big-endian"},
		"cut in the magic":    {whole[:3], "not a GGUF file"},
		"cut in the counts":   {whole[:20], "it was cut off"},
		"cut in a key":        {whole[:30], "it was cut off"},
		"cut in data":         {whole[:len(whole)-40], `tensor "t4" ends beyond the end of the file: it was cut off`},
		"many keys":           {header(3, 0, huge), "at most"},
		"many tensors":        {header(3, huge, 0), "at most"},
		"keys that are not":   {header(3, 0, maxKeys), "it was cut off"},
		"long key":            {little.AppendUint64(header(3, 0, 1), huge), "it was cut off"},
		"long text":           {key(8, little.AppendUint64(nil, huge)...), "it was cut off"},
		"long array":          {array(4, huge), "at most"},
		"array that is not":   {array(4, 1000), "it was cut off"},
		"texts that are not":  {array(8, 1000), "it was cut off"},
		"array of arrays":     {array(9, 1), "values of type 9 are not supported"},
		"unknown value":       {key(99), "values of type 99 are not supported"},
		"key twice":           {append(append(key(0, 1)[:16:16], little.AppendUint64(nil, 2)...), slices.Repeat(key(0, 1)[24:], 2)...), "appears twice"},
		"no dimension":        {one(0, 0), "0 dimensions, want 1 to 4"},
		"five dimensions":     {one(0, 0, 1, 1, 1, 1, 1), "5 dimensions"},
		"empty dimension":     {one(0, 0, 4, 0), "empty or larger than any file"},
		"dimensions overflow": {one(0, 0, 1<<32, 1<<32), "empty or larger than any file"},
		"long dimension":      {one(0, 0, huge), "empty or larger than any file"},
		"larger than file":    {one(0, 0, 1<<58), "it was cut off"},
		"broken blocks":       {one(8, 0, 33, 2), "Q8_0 rows of 33 numbers are not a multiple of the block size 32"},
		"crooked offset":      {one(0, 8, 4), "begins at byte 8, want a multiple of 32"},
		"offset beyond":       {one(0, 1<<20, 4), "it was cut off"},
		"offset overflows":    {one(0, 1<<64-32, 64), "it was cut off"},
		"overlap":             {append(entry(entry(header(3, 2, 0), "a", 0, 0, 16), "b", 0, 32, 16), make([]byte, 256)...), `tensor "b" overlaps another`},
		"tensor twice":        {append(entry(entry(header(3, 2, 0), "a", 0, 0, 4), "a", 0, 32, 4), make([]byte, 256)...), `tensor "a" is in both x.gguf and x.gguf`},
		"alignment 0":         {aligned(0), "general.alignment is not a power of two"},
		"alignment 48":        {aligned(48), "general.alignment is not a power of two"},
		"alignment 1<<31":     {aligned(1 << 31), "general.alignment is not a power of two"},
	}
}

func TestHostileFilesAreRefused(t *testing.T) {
	for name, c := range hostile() {
		t.Run(name, func(t *testing.T) {
			path := write(t, "x.gguf", c.data)
			var f *File
			var err error
			if n := allocated(func() { f, err = Open(path) }); n > 1<<20 {
				t.Errorf("%d bytes of file took %d bytes of memory", len(c.data), n)
			}
			if err == nil {
				_ = f.Close()
			}
			if err == nil || !strings.HasPrefix(err.Error(), "gguf: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if _, err := Open(filepath.Join(t.TempDir(), "no.gguf")); err == nil || !strings.Contains(err.Error(), "no.gguf") {
		t.Errorf("no file: %v", err)
	}
	if _, err := Open(write(t, "x.gguf", nil)); err == nil || !strings.Contains(err.Error(), "0 bytes") {
		t.Errorf("empty file: %v", err)
	}
}

func TestUnsupportedTypesAreNamed(t *testing.T) {
	var w gguftest.File
	for i, typ := range []uint32{15, 77, 0, 15, 9} {
		w.AddRaw(fmt.Sprintf("blk.%d.x", i), typ, []int{1, 256}, make([]byte, 1024))
	}
	f := opened(t, write(t, "x.gguf", w.Bytes()))
	_, err := f.Tensor("blk.0.x").Matrix()
	if want := `gguf: x.gguf: tensor "blk.0.x" has the type Q8_K, which is not supported`; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	refused := func(f *File, want string) {
		t.Helper()
		if err := f.Refuse(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused(f, "gguf: x.gguf: types that are not supported, with the number of their tensors: Q8_1 (1), Q8_K (2), 77 (1): use another file of this model, or quantize it to one of BF16, F16, F32, IQ")
	w.AddRaw("blk.9.x", 137, []int{1, 256}, make([]byte, 64))
	refused(opened(t, write(t, "x.gguf", w.Bytes())), "gguf: x.gguf: types that are not supported, with the number of their tensors: Q8_1 (1), Q8_K (2), 77 (1), 137 (1); only ik_llama.cpp reads types from 96 on: use")
}

// allocated is the number of bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// FuzzParse: any bytes are refused, or give values and tensors that can all be read.
func FuzzParse(f *testing.F) {
	f.Add(sample().Bytes())
	for _, c := range hostile() {
		f.Add(c.data)
	}
	for typ := range gguftest.Types {
		var w gguftest.File
		w.Add("x", typ, []int{1, 256}, make([]float32, 256))
		f.Add(w.Bytes())
	}
	var w gguftest.File
	stored := w.Add("x.weight", "NVFP4", []int{2, 1, 64}, make([]float32, 128))
	w.AddFactors("x.weight", []int{2, 1, 64}, stored)
	f.Add(w.Bytes())
	path := write(f, "x.gguf", sample().Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		var p *part
		var err error
		if n := allocated(func() { p, err = parse(data) }); n > uint64(1<<20+100*len(data)) {
			t.Fatalf("%d bytes of file took %d bytes of memory", len(data), n)
		}
		if err != nil {
			return
		}
		file := opened(t, path)
		file.values, file.Tensors, file.names = p.values, p.tensors, map[string]*Tensor{}
		for _, x := range p.tensors {
			x.File = file.Parts[0]
			file.names[x.Name] = x
		}
		if file.factors() != nil {
			return
		}
		_ = file.Refuse()
		for key := range p.values {
			_, _ = file.Whole(key)
			_, _ = file.Number(key)
			_, _ = file.Wholes(key)
			_, _ = file.Numbers(key)
			_, _ = file.Text(key)
			_, _ = file.Texts(key)
		}
		for _, x := range file.Tensors {
			m, err := x.Matrix()
			if err != nil {
				continue
			}
			if err := m.Validate(); err != nil {
				t.Fatalf("tensor %q: %v", x.Name, err)
			}
			m.Row(make([]float32, m.Cols), m.Rows-1)
		}
	})
}
