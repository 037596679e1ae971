package grammar

import (
	"errors"
	"slices"
)

// maxApart is the maximum depth of the difference between two alternatives.
const maxApart = 4

// allApart reports whether it is certain that no value has a shape of each list.
func (c *compiler) allApart(a, b []*shape, depth int) (bool, error) {
	for _, p := range a {
		for _, q := range b {
			apart, err := c.apart(p, q, depth)
			if errors.Is(err, errBusy) {
				return false, nil
			}
			if err != nil || !apart {
				return false, err
			}
		}
	}
	return true, nil
}

// apart reports whether it is certain that no value has both shapes.
func (c *compiler) apart(a, b *shape, depth int) (bool, error) {
	common := a.types & b.types
	if err := c.work.spend(16 + len(a.enum)*len(b.enum)/16); err != nil {
		return false, c.root.errorf("%w", err) // a shape may have no schemas
	}
	switch {
	case common == 0:
		return true, nil
	case a.enum != nil:
		return c.noneFits(a, b)
	case b.enum != nil:
		return c.noneFits(b, a)
	case common&^(typeInteger|typeFraction|typeObject) != 0 || depth == maxApart:
		return false, nil
	case common&typeObject == 0:
		return !between(tighter(a.lo, b.lo, 1), tighter(a.hi, b.hi, -1)), nil
	case common != typeObject:
		return false, nil
	}
	for _, name := range slices.Concat(a.required, b.required) {
		x, err := c.memberShapes(a, name)
		if err != nil {
			return false, err
		}
		y, err := c.memberShapes(b, name)
		if err != nil {
			return false, err
		}
		// A member that only one requires distinguishes them if the other forbids it.
		if !a.demands[name] && len(x) > 0 || !b.demands[name] && len(y) > 0 {
			continue
		}
		if apart, err := c.allApart(x, y, depth+1); err != nil || apart {
			return apart, err
		}
	}
	return false, nil
}

// noneFits reports whether certainly none of the values of an enum has another
// shape.
func (c *compiler) noneFits(a, b *shape) (bool, error) {
	for _, v := range a.enum {
		if b.enum != nil && !slices.ContainsFunc(b.enum, func(w *value) bool { return v.equal(w) }) {
			continue
		}
		if fits, err := c.fits(b, v, true); err != nil || fits {
			return false, err
		}
	}
	return true, nil
}

// memberShapes are the possible shapes of the named member of an object of a shape; none if
// the member is forbidden.
func (c *compiler) memberShapes(s *shape, name string) ([]*shape, error) {
	schemas, err := c.member(s, name)
	if err != nil {
		return nil, err
	}
	return c.shapes(schemas)
}
