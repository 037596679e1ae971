package gpu

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/topk"
)

// DrawParam is a draw as kernels have it: Draw of draw.cu and draw.glsl.
type DrawParam struct {
	Noise                     uint64
	Inverse, Steps, Share     float64
	Cols, Most, Levels, First int32
}

// DrawOf is a draw from a row of cols columns. The two factors of a temperature are those of package sampling's scale, its limits included.
func DrawOf(d *backend.Draw, cols int) DrawParam {
	if d.Cols < 0 || d.Cols > cols || d.TopK < 0 || d.Levels < 0 {
		panic(fmt.Sprintf("gpu: draw %+v from %d columns", *d, cols))
	}
	const octave = 1 << 24
	inverse := 0.0
	if d.Temperature != 0 {
		inverse = min(1/d.Temperature, math.MaxFloat64)
	}
	own := math.MaxInt32 // the first column that the mask is about
	if d.First > 0 {
		own = d.First * backend.RowBlock
	}
	return DrawParam{
		d.Noise, inverse, min(1/math.Ln2*octave/cmp.Or(d.Temperature, 1), math.MaxFloat64), d.TopP,
		int32(cmp.Or(d.Cols, cols)), int32(min(cmp.Or(d.TopK, math.MaxInt32), math.MaxInt32)), int32(min(cmp.Or(d.Levels, topk.Levels), topk.Levels)), int32(own),
	}
}

// DrawParams are draws in memory: topk's weights of the first octave, and each draw.
func DrawParams(draws []backend.Draw, cols int) []byte {
	le := binary.LittleEndian
	var data []byte
	for _, w := range topk.LevelWeights {
		data = le.AppendUint64(data, w)
	}
	for i := range draws {
		d := DrawOf(&draws[i], cols)
		for _, x := range [...]uint64{d.Noise, math.Float64bits(d.Inverse), math.Float64bits(d.Steps), math.Float64bits(d.Share)} {
			data = le.AppendUint64(data, x)
		}
		for _, x := range [...]int32{d.Cols, d.Most, d.Levels, d.First} {
			data = le.AppendUint32(data, uint32(x))
		}
	}
	return data
}

// DrawMasks has a bit for each block of each row's own columns, in rows of whole words; none if no row has any.
func DrawMasks(to []byte, draws []backend.Draw, cols int) (masks []byte, words int) {
	if !slices.ContainsFunc(draws, func(d backend.Draw) bool { return d.First > 0 }) {
		return to, 0
	}
	words = (cols + 32*backend.RowBlock - 1) / (32 * backend.RowBlock)
	masks = slices.Grow(to[:0], 4*words*len(draws))[:4*words*len(draws)]
	clear(masks)
	for i := range draws {
		row := masks[4*words*i:][:4*words]
		for _, block := range draws[i].Own {
			row[block/8] |= 1 << (block % 8)
		}
	}
	return masks, words
}

// DrawnBytes is the size of what kernels write for a draw: the id as a float, its probability, and 1 if the draw is exact.
const DrawnBytes = 12

// Draws are the draws of all rows of Top, none if no row is drawn from.
func (t *Tops) Draws(asks []backend.Ask) []backend.Draw {
	t.draws = t.draws[:0]
	if !slices.ContainsFunc(asks, func(a backend.Ask) bool { return a.Draw != nil }) {
		return nil
	}
	for i := range asks {
		t.draws = append(t.draws, backend.Draw{})
		if d := asks[i].Draw; d != nil {
			t.draws[i] = *d
		}
	}
	return t.draws
}

// drawn reads what kernels have drawn.
func (t *Tops) drawn(asks []backend.Ask, data []byte) {
	for r := range asks {
		if asks[r].Draw == nil {
			continue
		}
		x := data[r*DrawnBytes:]
		if exact := binary.LittleEndian.Uint32(x[8:]); exact != 0 {
			t.Best[r].Drawn = int32(math.Float32frombits(binary.LittleEndian.Uint32(x)))
		}
	}
}
