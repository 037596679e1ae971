package backend

import "github.com/foretoken/foretoken/internal/topk"

// TopBlock is how many columns share one maximum in Top.
const TopBlock = topk.Block

// Ask is what Top is to tell of one row.
type Ask struct {
	Cols int // how many columns count, from the first on; 0: all
	// K lists what is at least as high as the K-th highest of the maxima of blocks of TopBlock
	// columns, and so at least the K highest; everything if there are fewer blocks with a
	// number. 0: nothing.
	K    int
	Also []int32 // columns to tell whatever they hold, each one that counts
	Sum  bool    // the sum is asked for too, if K is not 0
	Draw *Draw   // how to draw an id, on a device that can; its Cols count in place of those above
}

// Best is Top's answer for one row. What is not a number is never listed, nor is minus infinity;
// plus infinity counts as the largest number when blocks are compared.
type Best struct {
	IDs    []int32   // the columns listed, ascending
	Logits []float32 // what they hold
	Low    float32   // every number that counts and is not listed is below it; +Inf if K is 0
	Also   []float32 // what the columns of Ask.Also hold
	// Sum is that of exp(x - highest) over the numbers x that count, within 1e-4 of itself; 0 if it
	// was not asked for or there are none. Devices may differ in it by rounding.
	Sum float32
	// Drawn is the id that Ask.Draw draws. It is -1 if there is none, or if filters that are not coarse
	// might draw another; it may be -1 if the device is no Drawer.
	Drawn int32
}
