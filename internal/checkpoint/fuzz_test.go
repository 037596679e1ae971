package checkpoint

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// FuzzHeader: any bytes are either refused or give tensors that lie inside the
// file, side by side, with a header that is JSON.
func FuzzHeader(f *testing.F) {
	f.Add([]byte(encode(f, map[string]string{"format": "pt"}, random("a", dtype.F32, 2, 3), random("b", dtype.U8))))
	f.Add([]byte(raw(one("U8", "[0,99]", "[0,0]"), 0)))
	f.Add([]byte(raw(`{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8],"x":[{"y":-1.5e3},null]}} `, 8)))
	f.Add([]byte(raw(`{"\u0061":{"dtype":"F7","shape":[-1],"data_offsets":[1]}}`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		x := &file{name: "x", data: data}
		var err error
		if n := allocated(func() { err = x.parse() }); n > uint64(1<<20+200*len(data)) {
			t.Fatalf("%d bytes of file took %d bytes of memory", len(data), n)
		}
		if len(data) >= 8 {
			// The header alone gives the same result as the whole file.
			n, refused := HeaderBytes([8]byte(data[:8]))
			var h *Header
			if n = min(n, len(data)); refused == nil {
				h, refused = ParseHeader(data[:n], len(data))
			}
			if err == nil && (refused != nil || len(h.Tensors) != len(x.entries)) {
				t.Fatalf("the header alone: %v, %v", h, refused)
			}
		}
		if err != nil {
			return
		}
		at := len(data)
		for i, e := range x.entries {
			if i == 0 {
				at = e.begin
			}
			n := e.typ.Size()
			for _, d := range e.shape {
				n *= d
			}
			if e.begin != at || len(e.bytes()) != n {
				t.Fatalf("tensor %q of %v %v: bytes %d to %d, want from %d", e.name, e.typ, e.shape, e.begin, e.end, at)
			}
			at = e.end
		}
		if at != len(data) {
			t.Fatalf("tensors end at %d of %d", at, len(data))
		}
		if header := data[8 : 8+uint64(data[0])+uint64(data[1])<<8+uint64(data[2])<<16+uint64(data[3])<<24]; !json.Valid(header) {
			t.Fatalf("took %q for JSON", header)
		}
	})
}

// FuzzFolder: any texts of the JSON files are refused or give a checkpoint whose
// methods do not panic, and no shard outside the folder is opened.
func FuzzFolder(f *testing.F) {
	f.Add("{}", `{"weight_map":{"m.weight":"model.safetensors"}}`, `{"eos_token_id":[1,2]}`)
	f.Add(`{"quantization":{"bits":4,"m":{"bits":8}},"text_config":null}`, `{"weight_map":{"a":"../x"}}`, `{"top_k":1.0}`)
	f.Add(`{"quantization_config":{"quant_method":"fp8","weight_block_size":[1,3]}}`, `{"metadata":[{}],"weight_map":{}}`, "null")
	f.Add(`{"text_config":{"quantization":{"mode":"mxfp4","m":false}}}`, "", "")
	shard := encode(f, nil, append(quantized(4, 32, dtype.BF16, 0, 4, 64),
		random("f.weight", dtype.F8E4M3, 4, 64), random("f.weight_scale_inv", dtype.F32, 4, 22))...)
	f.Fuzz(func(t *testing.T, config, index, generation string) {
		all := files{"config.json": config, "model.safetensors": shard, "generation_config.json": generation}
		if index != "" {
			all[IndexFile] = index
		}
		c, err := OpenFiles("test", all)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "checkpoint: ") {
				t.Fatalf("error %q does not name its package", err)
			}
			return
		}
		for _, name := range c.Files() {
			if _, ok := all[name]; !ok || !plainName(name) {
				t.Fatalf("opened %q", name)
			}
		}
		if !json.Valid(c.Config()) {
			t.Fatalf("took %q for JSON", config)
		}
		_, _ = c.Generation()
		for _, module := range []string{"m", "f"} {
			if m, err := c.Matrix(module, 4, 64); err == nil {
				m.Row(make([]float32, 64), 3)
			}
		}
		closed(t, c)
	})
}

// FuzzFormats: a module in any weight format, one tensor of which has another type, shape and byte, with any config,
// is refused or gives a matrix that can be decoded. The result by headers alone agrees with it.
func FuzzFormats(f *testing.F) {
	for i := range formats32 {
		f.Add(`{}`, uint8(i), uint8(0), uint8(0), uint8(2), uint16(32), uint16(128), uint16(0), uint8(0))
		f.Add(`{}`, uint8(i), uint8(1), uint8(dtype.F32), uint8(2), uint16(32), uint16(4), uint16(9), uint8(255))
	}
	for _, says := range []string{
		`"quant_method":"gptq","sym":true,"checkpoint_format":"gptq_v2"`,
		`"quant_method":"auto-round","packing_format":"auto_round","extra_config":{"m":{"bits":4,"group_size":32}}`,
		`"quant_method":"compressed-tensors","config_groups":{"a":{"targets":["m"],"weights":{"num_bits":8,"block_structure":[16,64]}}}`,
	} {
		f.Add(`{"quantization_config":{`+says+`}}`, uint8(6), uint8(1), uint8(dtype.BF16), uint8(4), uint16(2), uint16(2), uint16(0), uint8(0))
	}
	f.Fuzz(func(t *testing.T, config string, format, part, typ, rank uint8, rows, cols, at uint16, b uint8) {
		list := module32(formats32[int(format)%len(formats32)])
		x := &list[int(part)%len(list)]
		if typ := dtype.Type(typ); typ != dtype.Invalid && typ <= dtype.Bool && int(rows)*int(cols) <= 1<<16 {
			*x = random(x.Name, typ, [][]int{{}, {int(rows)}, {int(rows), int(cols)}, {1, int(rows), int(cols)}, {int(rows), 1, int(cols), 1}}[rank%5]...)
		}
		if len(x.data) > 0 {
			x.data[int(at)%len(x.data)] = b
		}
		file := encode(t, nil, list...)
		c, err := OpenFiles("test", files{"config.json": config, "model.safetensors": file})
		if err != nil {
			return
		}
		defer closed(t, c)
		var m dtype.Matrix
		if n := allocated(func() { m, err = c.Matrix("m", 32, 128) }); n > uint64(1<<20+64*len(file)) {
			t.Fatalf("%d bytes of file took %d bytes of memory", len(file), n)
		}
		look, wrong := c.LookMatrix("m", 32, 128)
		if err != nil {
			return
		}
		if wrong != nil || look.Format != m.Format || look.Bits != m.Bits || look.Group != m.Group || look.ScaleType != m.ScaleType {
			t.Fatalf("read %v, headers say %v: %v", m.Format, look.Format, wrong)
		}
		row := make([]float32, m.Cols)
		for r := range m.Rows {
			m.PlainRow(row, r)
		}
	})
}
