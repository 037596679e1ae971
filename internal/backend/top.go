package backend

import (
	"math"

	"github.com/foretoken/foretoken/internal/topk"
)

// Ask is the request of Top for one row.
type Ask struct {
	Cols int // how many columns count, from the first on; 0: all
	// K lists the numbers that are at least as high as the K-th highest of the maxima of blocks of topk.Block
	// columns, and so at least the K highest; everything if there are fewer blocks with a
	// number. 0: nothing.
	K    int
	Also []int32 // columns to return in any case, each one that counts
	Sum  bool    // the sum is requested too, if K is not 0
	Draw *Draw   // how to draw an id, on a device that can; its Cols count in place of those above
}

// Best is Top's answer for one row. NaN and minus infinity are never listed;
// plus infinity counts as the largest number when blocks are compared.
type Best struct {
	IDs    []int32   // the columns listed, ascending
	Logits []float32 // their values
	Low    float32   // every number that counts and is not listed is below it; +Inf if K is 0
	Also   []float32 // values of the columns of Ask.Also
	// Sum is that of exp(x - highest) over the numbers x that count, with a relative error of 1e-4; 0 if it
	// was not requested or there are none. Devices may differ in it by rounding.
	Sum float32
	// Drawn is the id that Ask.Draw draws. It is -1 if there is none, or if exact filters
	// might draw another; it may be -1 if the device is not a Drawer.
	Drawn int32
}

// Lister answers asks on the host. It keeps its working memory for the next row.
type Lister struct {
	Maxima      []float32 // of the blocks of the last row, if K was not 0
	keys, spare []uint64
}

// List answers an ask of a row, which has only the columns that count. It sets everything but the sum and the drawn id.
func (l *Lister) List(best *Best, row []float32, a *Ask) {
	best.IDs, best.Logits, best.Also, best.Sum, best.Drawn = best.IDs[:0], best.Logits[:0], best.Also[:0], 0, -1
	for _, id := range a.Also {
		best.Also = append(best.Also, row[id])
	}
	best.Low = float32(math.Inf(1))
	if a.K == 0 {
		return
	}
	l.Maxima = topk.Maxima(l.Maxima[:0], row)
	var low float32
	low, l.spare = topk.Kth(l.Maxima, a.K, -math.MaxFloat32, l.spare)
	best.Low = min(low, math.MaxFloat32)
	l.keys = topk.Gather(l.keys[:0], row, l.Maxima, best.Low)
	for _, k := range l.keys {
		id := topk.ID(k)
		best.IDs = append(best.IDs, id)
		best.Logits = append(best.Logits, row[id])
	}
}
