//go:build !noasm

package kernel

import "unsafe"

// panelKernels are the integer kernels of a set with vectors of 32 bytes.
type panelKernels struct {
	packed   *[integerFormats][packedRows]func(*integerArgs) // for few rows
	unpack   *[integerFormats]func(*integerArgs)
	multiply *[integerFormats]*[panelRows]func(*integerArgs)
	split    bool // codes of 8 bits are two planes
}

var (
	panelsAVX2 = panelKernels{&integerAVX2, &unpackAVX2, &multiplyAVX2, true}
	panelsVNNI = panelKernels{&integerVNNI, &unpackVNNI, &multiplyVNNI, false}
)

// panelRows is the maximum height of strips that panels are multiplied with, packedRows that of others, and twoStrips the number of
// rows for which two strips are better than panels.
const (
	panelRows  = 6
	packedRows = 4
	twoStrips  = 2 * packedRows
)

// panelCodes is the number of bytes of unpacked groups that stay in the L1 cache while all rows pass.
const panelCodes = 9 << 10

// fetchDistance is how far behind the panel after this one memory is asked for, in bytes.
const fetchDistance = 2048

// stripsPanel is Set.strips: strips of nearly equal height.
func stripsPanel(rows int, r rounding) strips {
	most, few := panelRows, rows <= twoStrips && r.part == 0
	if r.part > 0 || few {
		most = packedRows
	}
	n := max(1, (rows+most-1)/most)
	s := strips{height: max(1, (rows+n-1)/n)}
	if few {
		s.pad = n*s.height - rows
	}
	return s
}

// integerPanels is integerTiles. Few rows, and superblocks, are multiplied with packed codes. For more rows it unpacks some
// groups of a tile, and multiplies them with all strips.
func integerPanels(k *panelKernels, out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	if w.grid() {
		gridStrips(gridAVX2[:], expandersAVX2, out, w, n, from, to, a, s)
		return
	}
	format := w.integerFormat()
	c := integerCall{&s.integer, out, w, n, a}
	c.open(s)
	c.formPanels(k, format)
	strips := a.OutRows() / a.height
	switch {
	case w.per > 1:
		c.args.strips = 1
		c.strips(k.packed[format][:], 0, from, to, from)
	case strips > 2 || a.height > packedRows:
		c.panels(k, format, from, to, s)
	case from < to && w.groups > 0:
		c.args.strips = strips
		c.args.actStrip = a.groups * a.stride(a.height)
		c.args.actsBack, c.args.outBack = (strips-1)*c.args.actStrip, (strips-1)*a.height*Tile*4
		c.args.tiles = to - from
		c.run(k.packed[format][a.height-1], 0, from, 0, from)
	}
	*c.args = integerArgs{}
}

// panels multiplies by panels.
func (c *integerCall) panels(k *panelKernels, format, from, to int, s *Scratch) {
	args, w, a := c.args, c.w, c.a
	rows := a.OutRows()
	slot := args.planes*w.group*Tile + 2*4*Tile
	groups := max(1, panelCodes/slot)
	s.tiles = aligned(s.tiles, groups*slot)
	args.slots = unsafe.Pointer(&s.tiles[0])
	panel := groups * w.block
	strips := (rows + a.height - 1) / a.height
	asking := min(strips, 4) // strips that ask memory for lines of the panel after the next
	lines := (panel + asking*groups*cacheLine - 1) / (asking * groups * cacheLine)
	for t := from; t < to; t++ {
		at := (t - from) * args.outTile / 4
		clear(c.out[at : at+rows*Tile])
		for g := 0; g < w.groups; g += groups {
			args.groups = min(groups, w.groups-g)
			block := unsafe.Pointer(unsafe.SliceData(w.at(c.n, t, g)))
			args.weights = block
			k.unpack[format](args)
			args.fetchAt, args.fetchLines = uintptr(block)+uintptr(panel+fetchDistance), lines
			ask := asking
			for r := 0; r < rows; r += a.height {
				m := a.inStrip(r)
				args.acts = unsafe.Pointer(&a.strip(r)[g*a.stride(m)])
				args.out = unsafe.Pointer(&c.out[at+r*Tile])
				k.multiply[format][m-1](args)
				args.fetchAt += uintptr(args.groups * lines * cacheLine)
				if ask--; ask == 0 {
					args.fetchLines = 0
				}
			}
		}
	}
}

// formPanels sets the fields that are the same for all panels.
func (c *integerCall) formPanels(k *panelKernels, format int) {
	args := c.args
	args.planes = 1
	if k.split && (format == integer8 || format == integerLevels) {
		args.planes = 2
	}
	switch {
	case args.scale == scaleFirst:
		args.form = panelFirst
	case args.scale&scalePoints > 0:
		args.form = panelPoints
	case args.scale&scaleZero > 0 || format == integerFP4 || format == integerLevels:
		args.form = panelOffset
	}
}
