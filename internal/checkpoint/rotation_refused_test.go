package checkpoint

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// rotatedModule is a module of ParoQuant with 128 columns.
func rotatedModule(rows int) []tensor {
	pairs := tensor{Decl{"m.pairs", dtype.I16, []int{2, 128}}, make([]byte, 2*2*128)}
	for i := range 256 {
		binary.LittleEndian.PutUint16(pairs.data[2*i:], uint16(i%128))
	}
	return []tensor{
		random("m.qweight", dtype.I32, 128, rows/8), random("m.qzeros", dtype.I32, 1, rows/8), random("m.scales", dtype.F16, 1, rows),
		random("m.theta", dtype.F16, 2, 64), pairs, random("m.channel_scales", dtype.F16, 1, 128),
	}
}

// TestMatrixRefusesRotations changes one tensor of a module of ParoQuant each time.
func TestMatrixRefusesRotations(t *testing.T) {
	const paro = `{"quantization_config":{"quant_method":"paroquant","bits":4,"group_size":128,"krot":2}}`
	open := func(config string, change ...tensor) error {
		list := rotatedModule(8)
		for _, x := range change {
			i := slices.IndexFunc(list, func(y tensor) bool { return y.Name == x.Name })
			if list[i] = x; x.Shape == nil {
				list = slices.Delete(list, i, i+1)
			}
		}
		c, err := OpenFiles("test", files{"config.json": config, "model.safetensors": encode(t, nil, list...)})
		if err != nil {
			return err
		}
		if _, err = c.Matrix("m", 8, 128); err == nil {
			if unused := c.Unused(); len(unused) > 0 {
				t.Errorf("unused: %q", unused)
			}
		}
		return err
	}
	for _, config := range []string{paro, "{}"} {
		if err := open(config); err != nil {
			t.Error(err)
		}
	}
	if err := open(paro, random("m.channel_scales", dtype.F16, 128)); err != nil {
		t.Error(err)
	}
	pairs := rotatedModule(8)[4]
	twice, outside := slices.Clone(pairs.data), slices.Clone(pairs.data)
	twice[2*7] = 6
	binary.LittleEndian.PutUint16(outside[2*130:], 128)
	angles := make([]float32, 128)
	angles[3] = float32(math.NaN())
	gone := func(name string) tensor { return tensor{Decl: Decl{Name: name}} }
	for want, x := range map[string]tensor{
		`"m.theta" beside it: tensor is missing`:                       gone("m.theta"),
		`"m.pairs" beside it: tensor is missing`:                       gone("m.pairs"),
		`"m.channel_scales" beside it: tensor is missing`:              gone("m.channel_scales"),
		`"m.theta": shape [17, 64], want [1 to 16, 64]`:                random("m.theta", dtype.F16, 17, 64),
		`"m.theta": shape [2, 128], want [1 to 16, 64]`:                random("m.theta", dtype.F16, 2, 128),
		`"m.theta": number 3 is NaN: the file is damaged`:              numbers("m.theta", dtype.F16, []int{2, 64}, angles...),
		`"m.pairs": type I32, want I16`:                                random("m.pairs", dtype.I32, 2, 128),
		`"m.pairs": I16 of shape [1, 128], want [2, 128]`:              random("m.pairs", dtype.I16, 1, 128),
		`"m.pairs": dtype: rotation has place 6 twice`:                 {pairs.Decl, twice},
		`"m.pairs": round 1 has the place 128 at column 2, want one b`: {pairs.Decl, outside},
		`"m.channel_scales": F16 of shape [64], want 128 numbers`:      random("m.channel_scales", dtype.F16, 64),
		`128 columns in groups of 64 is not supported, want groups of`: random("m.scales", dtype.F16, 2, 8),
	} {
		change := []tensor{x}
		if x.Name == "m.scales" {
			change = append(change, random("m.qzeros", dtype.I32, 2, 1))
		}
		if err := open(paro, change...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
