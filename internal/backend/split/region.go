package split

// rect is rows [r0, r1) and columns [c0, c1) of a piece of memory.
type rect struct{ r0, r1, c0, c1 int }

func (a rect) empty() bool { return a.r0 >= a.r1 || a.c0 >= a.c1 }

func (a rect) size() int {
	if a.empty() {
		return 0
	}
	return (a.r1 - a.r0) * (a.c1 - a.c0)
}

// and is the intersection of two rectangles.
func (a rect) and(b rect) rect {
	return rect{max(a.r0, b.r0), min(a.r1, b.r1), max(a.c0, b.c0), min(a.c1, b.c1)}
}

// meets reports whether two rectangles have a number in common.
func (a rect) meets(b rect) bool { return !a.and(b).empty() }

// around is the least rectangle with both.
func (a rect) around(b rect) rect {
	switch {
	case a.empty():
		return b
	case b.empty():
		return a
	}
	return rect{min(a.r0, b.r0), max(a.r1, b.r1), min(a.c0, b.c0), max(a.c1, b.c1)}
}

// region is rectangles that have nothing in common.
type region []rect

// and is the region's part of a rectangle.
func (g region) and(a rect) region {
	var out region
	for _, x := range g {
		if x = x.and(a); !x.empty() {
			out = append(out, x)
		}
	}
	return out
}

// within is how many numbers of a rectangle the region has.
func (g region) within(a rect) int {
	n := 0
	for _, x := range g {
		n += x.and(a).size()
	}
	return n
}

// less is the region without a rectangle.
func (g region) less(a rect) region {
	if g.within(a) == 0 {
		return g
	}
	var out region
	for _, x := range g {
		y := x.and(a)
		if y.empty() {
			out = append(out, x)
			continue
		}
		for _, part := range [4]rect{
			{x.r0, y.r0, x.c0, x.c1}, {y.r1, x.r1, x.c0, x.c1}, // above and below
			{y.r0, y.r1, x.c0, y.c0}, {y.r0, y.r1, y.c1, x.c1}, // left and right
		} {
			if !part.empty() {
				out = append(out, part)
			}
		}
	}
	return out
}

// plus is the region with a rectangle. Neighbors that make a rectangle become one: rows that are
// written one by one would make the list long.
func (g region) plus(a rect) region {
	if a.empty() {
		return g
	}
	g = g.less(a)
	for i, x := range g {
		rows := x.c0 == a.c0 && x.c1 == a.c1 && (x.r1 == a.r0 || a.r1 == x.r0)
		cols := x.r0 == a.r0 && x.r1 == a.r1 && (x.c1 == a.c0 || a.c1 == x.c0)
		if rows || cols {
			rest := append(append(region(nil), g[:i]...), g[i+1:]...)
			return rest.plus(rect{min(x.r0, a.r0), max(x.r1, a.r1), min(x.c0, a.c0), max(x.c1, a.c1)})
		}
	}
	return append(g[:len(g):len(g)], a)
}

// minus is the part of a rectangle outside of the region.
func (a rect) minus(g region) region {
	out := region{a}
	if a.empty() {
		return nil
	}
	for _, x := range g {
		out = out.less(x)
	}
	return out
}
