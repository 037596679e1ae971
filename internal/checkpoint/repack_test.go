package checkpoint

import (
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// BenchmarkRepack reads matrices that are repacked while loading, by the bytes of their elements. A view is the time that
// remains: of the checks of scales.
func BenchmarkRepack(b *testing.B) {
	const rows, cols = 4096, 4096
	order := make([]int64, cols)
	for i := range order {
		order[i] = int64(i % (cols / 128))
	}
	gptq := []tensor{random("m.qweight", dtype.I32, cols/8, rows), random("m.qzeros", dtype.I32, cols/128, rows/8), random("m.scales", dtype.F16, cols/128, rows)}
	for _, c := range []struct {
		name    string
		tensors []tensor
	}{
		{"awq", []tensor{random("m.qweight", dtype.I32, cols, rows/8), random("m.qzeros", dtype.I32, cols/128, rows/8), random("m.scales", dtype.F16, cols/128, rows)}},
		{"gptq", gptq},
		{"act-order", append(gptq, whole("m.g_idx", dtype.I32, order...))},
		{"int8", []tensor{random("m.weight", dtype.I8, rows, cols), random("m.weight_scale", dtype.BF16, rows, 1)}},
		{"packed", []tensor{random("m.weight_packed", dtype.I32, rows, cols/8), random("m.weight_scale", dtype.BF16, rows, cols/32), random("m.weight_zero_point", dtype.I32, rows/8, cols/32)}},
	} {
		b.Run("format="+c.name, func(b *testing.B) {
			k, err := OpenFiles("test", files{"config.json": `{}`, "model.safetensors": encode(b, nil, c.tensors...)})
			if err != nil {
				b.Fatal(err)
			}
			defer closed(b, k)
			b.SetBytes(int64(len(c.tensors[0].data)))
			for b.Loop() {
				if _, err := k.Matrix("m", rows, cols); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
