package checkpoint

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// good is a small model that opens.
func good(t testing.TB) files {
	return files{
		"config.json": "{}",
		"model.safetensors.index.json": `{"metadata":{"total_size":40},"weight_map":{
			"a":"model-1.safetensors","b":"model-1.safetensors","c":"model-2.safetensors"}}`,
		"model-1.safetensors": encode(t, nil, random("a", dtype.F32, 2), random("b", dtype.BF16, 4)),
		"model-2.safetensors": encode(t, nil, random("c", dtype.F32, 2, 3)),
	}
}

// one is a header of one tensor, c.
func one(typ, shape, offsets string) string {
	return `{"c":{"dtype":"` + typ + `","shape":` + shape + `,"data_offsets":` + offsets + `}}`
}

// hostile is a malformed model: the good one with some files replaced, "-" for
// removed, and the expected words of the error.
type hostile struct {
	name  string
	files files
	want  []string
}

// run opens each from a folder and from memory, and checks the message and that
// no memory was taken on the word of the file.
func run(t *testing.T, cases []hostile) {
	t.Helper()
	base := good(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			all := base.with(c.files)
			for name, text := range all {
				if text == "-" {
					delete(all, name)
				}
			}
			dir := all.write(t)
			for from, open := range map[string]func() (*Checkpoint, error){
				"folder": func() (*Checkpoint, error) { return Open(dir) },
				"memory": func() (*Checkpoint, error) { return OpenFiles("test", all) },
			} {
				var err error
				n := allocated(func() { _, err = open() })
				contains(t, err, c.want...)
				if n > 1<<20 {
					t.Errorf("from %s: took %d bytes of memory", from, n)
				}
			}
		})
	}
}

func TestOpenRefusesHeaders(t *testing.T) {
	shard := good(t)["model-2.safetensors"]
	length := func(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) + shard[8:] }
	bad := func(header string, n int) files { return files{"model-2.safetensors": raw(header, n)} }
	run(t, []hostile{
		{"empty file", files{"model-2.safetensors": ""}, []string{"model-2.safetensors", "not a safetensors file: 0 bytes"}},
		{"seven bytes", files{"model-2.safetensors": shard[:7]}, []string{"not a safetensors file: 7 bytes"}},
		{"truncated header", files{"model-2.safetensors": shard[:20]}, []string{"model-2.safetensors", "cut off"}},
		{"truncated data", files{"model-2.safetensors": shard[:len(shard)-1]}, []string{"model-2.safetensors", `"c"`, "0 to 24", "has 23", "cut off"}},
		{"trailing data", files{"model-2.safetensors": shard + "x"}, []string{"model-2.safetensors", "1 bytes after the last tensor"}},
		{"header longer than the limit", files{"model-2.safetensors": length(maxHeader + 1)}, []string{"100000001", "at most 100000000"}},
		{"header longer than the file", files{"model-2.safetensors": length(1 << 20)}, []string{"header of 1048576 bytes", "cut off"}},
		{"header length of all ones", files{"model-2.safetensors": length(math.MaxUint64)}, []string{"18446744073709551615"}},
		{"no json", bad("hello", 0), []string{"header: at byte 0", `'h' where '{'`}},
		{"header ends early", bad(`{"c":`, 0), []string{`tensor "c"`, "unexpected EOF"}},
		{"text after header", bad(`{} {}`, 0), []string{`'{' after the end`}},
		{"trailing comma", bad(`{"c":{},}`, 0), []string{`tensor "c"`}},
		{"tensor twice", bad(strings.Replace(one("U8", "[1]", "[0,1]"), "}}", `},`+one("U8", "[1]", "[1,2]")[1:], 1), 2), []string{`"c" appears twice`}},
		{"key twice", bad(`{"c":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), []string{`"dtype" appears twice`}},
		{"metadata twice", bad(`{"__metadata__":{"a":"1","a":"2"}}`, 0), []string{`metadata "a" appears twice`}},
		{"metadata of numbers", bad(`{"__metadata__":{"a":1}}`, 0), []string{"string was expected"}},
		{"no type", bad(`{"c":{"shape":[1],"data_offsets":[0,1]}}`, 1), []string{`tensor "c"`, "no dtype"}},
		{"no shape", bad(`{"c":{"dtype":"U8","data_offsets":[0,1]}}`, 1), []string{`tensor "c"`, "no shape"}},
		{"no offsets", bad(`{"c":{"dtype":"U8","shape":[1]}}`, 1), []string{`tensor "c"`, "no data_offsets"}},
		{"one offset", bad(one("U8", "[1]", "[0]"), 1), []string{"1 data_offsets, want 2"}},
		{"three offsets", bad(one("U8", "[1]", "[0,1,2]"), 1), []string{"more than 2 numbers"}},
		{"unknown type", bad(one("F7", "[1]", "[0,1]"), 1), []string{`tensor "c"`, `unknown type "F7"`}},
		{"invalid type", bad(one("invalid", "[1]", "[0,0]"), 0), []string{`unknown type "invalid"`}},
		{"negative shape", bad(one("U8", "[-1]", "[0,1]"), 1), []string{`tensor "c"`, "whole number"}},
		{"fractional shape", bad(one("U8", "[1.5]", "[0,1]"), 1), []string{"fraction"}},
		{"NaN shape", bad(one("U8", "[NaN]", "[0,1]"), 1), []string{"NaN, which JSON does not have"}},
		{"shape beyond int", bad(one("U8", "[99999999999999999999]", "[0,1]"), 1), []string{"too large"}},
		{"shape product overflows", bad(one("F32", "[4294967296,4294967296]", "[0,16]"), 16), []string{`tensor "c"`, "larger than any file"}},
		{"shape product wraps to zero", bad(one("F32", "[4611686018427387904,4]", "[0,0]"), 0), []string{"larger than any file"}},
		{"absurd size", bad(one("F32", "[1000000000000]", "[0,4000000000000]"), 8), []string{`tensor "c"`, "4000000000000", "has 8"}},
		{"absurd rank", bad(one("U8", "["+strings.Repeat("1,", 99)+"1]", "[0,1]"), 1), []string{"more than 16 numbers"}},
		{"offsets backwards", bad(one("U8", "[1]", "[2,1]"), 2), []string{"backwards"}},
		{"offsets past the end", bad(one("U8", "[1]", "[7,8]"), 2), []string{"cut off or damaged"}},
		{"offsets too short", bad(one("F32", "[2]", "[0,4]"), 4), []string{"F32 [2] needs 8 bytes", "give 4"}},
		{"offsets too long", bad(one("F32", "[1]", "[0,8]"), 8), []string{"needs 4 bytes", "give 8"}},
		{"overlap", bad(`{"c":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"d":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}`, 6), []string{`"d" overlaps "c"`}},
		{"same bytes", bad(`{"c":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"d":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4), []string{`"d" overlaps "c"`}},
		{"hole", bad(one("U8", "[1]", "[3,4]"), 4), []string{`"c"`, "3 bytes between it and the header"}},
		{"deep nesting", bad(`{"c":{"x":`+strings.Repeat("[", 1<<16), 0), []string{"nested more than"}},
		{"not UTF-8", bad("{\"\xff\":{}}", 0), []string{"not UTF-8"}},
		{"not UTF-8, escaped", bad("{\"\\n\xff\":{}}", 0), []string{"not UTF-8"}},
		{"bad escape", bad(`{"\q":{}}`, 0), []string{"string"}},
		{"control character", bad("{\"a\n\":{}}", 0), []string{"control character"}},
		{"string without end", bad(`{"a`, 0), []string{"without end"}},
	})
}

func TestOpenRefusesIndexes(t *testing.T) {
	index := func(text string) files { return files{"model.safetensors.index.json": text} }
	run(t, []hostile{
		{"missing shard", files{"model-2.safetensors": "-"}, []string{"model-2.safetensors", "with c", "is missing"}},
		{"missing shard of many", index(`{"weight_map":{"a":"x","b":"x","c":"x","d":"x","e":"x"}}`), []string{"shard x with a, b, c and 2 more is missing"}},
		{"tensor not in its shard", index(`{"weight_map":{"a":"model-1.safetensors","z":"model-1.safetensors"}}`), []string{"model-1.safetensors", `"z"`, "missing"}},
		{"tensor in another shard", index(`{"weight_map":{"c":"model-1.safetensors","a":"model-2.safetensors"}}`), []string{`"c"`, "model-1.safetensors", "missing"}},
		{"tensor in two shards", files{"model-2.safetensors": encode(t, nil, random("c", dtype.F32, 2), random("a", dtype.F32, 2))}, []string{`"a" is in both model-1.safetensors and model-2.safetensors`}},
		{"index path upwards", index(`{"weight_map":{"a":"../model-1.safetensors"}}`), []string{"index.json", `"a"`, `"../model-1.safetensors"`, "not a file name"}},
		{"index path absolute", index(`{"weight_map":{"a":"/etc/passwd"}}`), []string{`"/etc/passwd"`, "not a file name"}},
		{"index path downwards", index(`{"weight_map":{"a":"sub/x.safetensors"}}`), []string{"not a file name"}},
		{"index path of Windows", index(`{"weight_map":{"a":"..\\x.safetensors"}}`), []string{"not a file name"}},
		{"index drive of Windows", index(`{"weight_map":{"a":"C:x.safetensors"}}`), []string{"not a file name"}},
		{"index names the folder", index(`{"weight_map":{"a":"."}}`), []string{"not a file name"}},
		{"index names its parent", index(`{"weight_map":{"a":".."}}`), []string{"not a file name"}},
		{"index with nothing for a name", index(`{"weight_map":{"a":""}}`), []string{"not a file name"}},
		{"index with a zero byte", index(`{"weight_map":{"a":"x\u0000"}}`), []string{"not a file name"}},
		{"index twice", index(`{"weight_map":{"a":"x","a":"y"}}`), []string{`"a" appears twice`}},
		{"index with two maps", index(`{"weight_map":{"a":"x"},"weight_map":{}}`), []string{"weight_map appears twice"}},
		{"index without map", index(`{"metadata":{"n":[1,-2.5e3,null,true]}}`), []string{"index.json", "no weight_map"}},
		{"index of numbers", index(`{"weight_map":{"a":1}}`), []string{"string was expected"}},
		{"index not json", index(`{"weight_map"`), []string{"unexpected EOF"}},
		{"index names a folder", index(`{"weight_map":{"a":"mtp"}}`).with(files{"mtp/x": ""}), []string{"mtp"}},
	})
}

func TestOpenRefusesConfigs(t *testing.T) {
	config := func(text string) files { return files{"config.json": text} }
	run(t, []hostile{
		{"no config", files{"config.json": "-"}, []string{"not a model folder", "config.json"}},
		{"a GGUF file", files{"config.json": "-", "x.gguf": ""}, []string{"not a model folder", "give the path of a GGUF file, such as", "x.gguf"}},
		{"config of NaN", config("{\n\"a\": 1,\n\"rms_norm_eps\": NaN}"), []string{"config.json line 3: NaN is not valid JSON"}},
		{"config of Infinity", config(`{"a": [1, -Infinity]}`), []string{"config.json line 1: Infinity is not valid JSON"}},
		{"config cut off", config("{\n\"a\": "), []string{"config.json line 2", "unexpected end"}},
		{"config not an object", config(`[1]`), []string{"config.json", "object"}},
		{"config null", config(`null`), []string{"config.json", "object"}},
		{"config of bytes", config("\xff\xfe"), []string{"config.json"}},
		{"quantization a string", config(`{"quantization":"4bit"}`), []string{"quantization", "found string, want object"}},
		{"text_config a number", config(`{"text_config":3}`), []string{"text_config", "found number, want object"}},
		{"bits a string", config(`{"quantization":{"bits":"four"}}`), []string{"quantization", `"bits"`}},
		{"unknown mode", config(`{"quantization":{"mode":"q4_k"}}`), []string{`mode "q4_k" is not supported`, "mxfp4"}},
		{"unknown mode of a module", config(`{"quantization":{"x.y":{"mode":"q4_k"}}}`), []string{`"x.y"`, `mode "q4_k" is not supported`}},
		{"module with bad bits", config(`{"quantization":{"x.y":{"bits":[4]}}}`), []string{`"x.y"`}},
		{"block size of zero", config(`{"quantization_config":{"quant_method":"fp8","weight_block_size":[0,128]}}`), []string{"weight_block_size [0 128]"}},
		{"block size of one number", config(`{"text_config":{"quantization_config":{"quant_method":"fp8","weight_block_size":[128]}}}`), []string{"weight_block_size [128]"}},
		{"damaged sidecar", files{"mtp.safetensors": "xxxxxxxxxxxx"}, []string{"mtp.safetensors", "header"}},
	})
}

func TestOpenRefusesFolders(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "absent"))
	contains(t, err, "absent", "not a model folder")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v does not wrap fs.ErrNotExist", err)
	}
	_, err = Open(files{"config.json": "{}", "model.gguf": "GGUF"}.write(t))
	contains(t, err, "no *.safetensors file")
	_, err = Open(files{"config.json": "{}", "model.safetensors/x": ""}.write(t))
	contains(t, err, "no *.safetensors file")
	_, err = OpenFiles("test", files{"config.json": "{}", "../x": ""})
	contains(t, err, `"../x"`)
	_, err = Open(files{"config.json": strings.Repeat(" ", maxConfig+1)}.write(t))
	contains(t, err, "config.json", "at most")
}

func TestOpenRefusesPipesAndFollowsLinks(t *testing.T) {
	dir := files{"config.json": "{}", "blobs/x": encode(t, nil, random("a", dtype.F32, 2))}.write(t)
	if err := os.Symlink("blobs/x", filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, c)
	if !c.Has("a") {
		t.Error("tensor behind a link is not there")
	}
	if err := os.Symlink(os.DevNull, filepath.Join(dir, "model-2.safetensors")); err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir)
	contains(t, err, "model-2.safetensors", "not a regular file")
}

func TestReadFileStaysInside(t *testing.T) {
	good(t).with(files{"tokenizer.json": "{}", "sub/x": "y"}).both(t, func(t *testing.T, c *Checkpoint) {
		if b, err := c.ReadFile("tokenizer.json"); err != nil || string(b) != "{}" {
			t.Errorf("%q, %v", b, err)
		}
		if b, err := c.ReadFile("sub/x"); err != nil || string(b) != "y" {
			t.Errorf("%q, %v", b, err)
		}
		for _, name := range []string{"../x", "/etc/passwd", "sub/../../x", "", `..\x`, "C:x"} {
			_, err := c.ReadFile(name)
			contains(t, err, strconv.Quote(name))
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%q: %v does not wrap fs.ErrInvalid", name, err)
			}
		}
		if _, err := c.ReadFile("absent"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v does not wrap fs.ErrNotExist", err)
		}
	})
}
