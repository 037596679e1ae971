package cuda

import "fmt"

// panelForm is a kernel of kernels/panel.cuh.
type panelForm struct {
	name        string
	strips      int  // of rows
	parts       int  // warps that share a tile, each with some of the strips
	groups      int  // of a chunk
	stages      int  // chunks of a warp that are under way
	least, most int  // tiles of a panel; with fewer, relays are faster
	once        bool // only if every multiprocessor has one panel
}

// nibblePanels are those for blocks of 4 bits and 64 columns, by measurements on an H200.
var nibblePanels = []panelForm{
	{"1", 1, 1, 8, 3, 3, 14, false},
	{"2_narrow", 2, 2, 8, 4, 1, 2, false},
	{"2", 2, 1, 8, 2, 3, 18, false},
	{"3_narrow", 3, 3, 8, 4, 1, 2, false},
	{"3", 3, 1, 8, 2, 3, 18, false},
	{"4_narrow", 4, 4, 8, 2, 1, 2, false},
	{"4", 4, 1, 8, 2, 3, 12, false},
	{"4_wide", 4, 1, 4, 3, 13, 18, true},
}

// bytePanels are those for 8 bits.
var bytePanels = []panelForm{
	{"2", 2, 1, 4, 2, 3, 18, false},
	{"3", 3, 1, 4, 2, 3, 18, false},
	{"4", 4, 1, 4, 2, 3, 14, false},
}

// tablePanels are those for table codes, in groups of 32; nanoPanels in groups of 16.
var tablePanels = []panelForm{
	{"1", 1, 1, 8, 3, 3, 14, false},
	{"2_narrow", 2, 2, 8, 4, 1, 2, false},
	{"2", 2, 1, 8, 2, 3, 18, false},
	{"3_narrow", 3, 3, 8, 4, 1, 2, false},
	{"3", 3, 1, 8, 2, 3, 18, false},
	{"4_narrow", 4, 4, 8, 2, 1, 2, false},
	{"4", 4, 1, 8, 2, 3, 12, false},
}

var nanoPanels = []panelForm{
	{"1", 1, 1, 4, 6, 3, 14, false},
	{"2_narrow", 2, 2, 4, 4, 1, 2, false},
	{"2", 2, 1, 4, 4, 3, 18, false},
	{"3_narrow", 3, 3, 4, 4, 1, 2, false},
	{"3", 3, 1, 4, 4, 3, 18, false},
	{"4_narrow", 4, 4, 4, 2, 1, 2, false},
	{"4", 4, 1, 4, 4, 3, 12, false},
}

const (
	rowWarps   = 2         // warps of a block that copy rows
	panelSpan  = 16        // groups that rows lie in shared memory for
	panelLeast = 120 << 10 // bytes of a block's memory: no two blocks on a multiprocessor while others have none
)

// panelShape is a launch of a form: how many tiles a panel has, groups a span has, and the memory of a block.
type panelShape struct {
	panelForm
	size, span, shared int
}

// paneled is the shape in which products are multiplied, if panels are for them. Tiles are spread evenly over the multiprocessors, in as few rounds as memory permits.
func (b *Backend) paneled(list []product) (s panelShape, ok bool) {
	p, tiles := &list[0], tilesOf(list)
	l := &p.w.Layout
	for rounds := 1; rounds <= tiles; rounds++ {
		places := b.info.Multiprocessors * rounds
		size := (tiles + places - 1) / places
		for _, f := range p.w.forms().panels {
			if (p.rows+strip-1)/strip != f.strips || size < f.least || size > f.most || f.once && rounds > 1 {
				continue
			}
			span := min(panelSpan, (l.Groups+f.groups-1)/f.groups*f.groups)
			s = panelShape{f, size, span, max(panelLeast, size*f.stages*f.groups*l.Block+2*span*f.strips*strip*(l.Group+p.w.tails()))}
			if s.shared <= b.info.Shared {
				return s, true
			}
		}
	}
	return s, false
}

// panels launches products of a few dozen rows.
func (b *Backend) panels(list []product) {
	s, _ := b.paneled(list)
	p, tiles := &list[0], tilesOf(list)
	l := &p.w.Layout
	b.launchAs(fmt.Sprintf("%s.panel_%d_%d_%s", p.w.forms().module, l.Bits, l.Group, s.name), sizes(list...), grid{
		x: min(b.info.Multiprocessors, (tiles+s.size-1)/s.size), threads: 32 * (s.size*s.parts + rowWarps), shared: s.shared,
	}, p.param(), parts(list), s.span)
}
