package backend

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
