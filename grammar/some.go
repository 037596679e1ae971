package grammar

// maxSomeItem bounds the places of an item that an array must have.
const maxSomeItem = 64

// readSome reads a schema that at least one item is valid against.
func (s *shape) readSome(v *value) error {
	if s.some != nil && s.some != v {
		s.refused = madeText(v, text, "items")
	}
	s.some = v
	return nil
}

// someArray is the node of arrays at least one item of which is valid against one more schema. The
// places of this item are counted up to the least number of items, or to the most.
func (c *compiler) someArray(s *shape, m marks) (int32, error) {
	limit := s.items.most
	if limit == unlimited {
		limit = s.items.least
	}
	for _, v := range s.schemas {
		if first, _ := v.places(); len(first) > 0 || s.unique != nil || limit > maxSomeItem {
			return 0, s.some.errorf("an item that items exclude cannot be demanded beside uniqueItems, prefixItems, or minItems or maxItems above %d; say what is allowed", maxSomeItem)
		}
	}
	item, err := c.value(s.item(0))
	if err != nil {
		return 0, err
	}
	other, err := c.value(append(s.item(0), s.some))
	if err != nil {
		return 0, err
	}
	before, after := c.seq(item, m.comma), c.seq(m.comma, item)
	n := c.alt()
	add := func(least, most, rest, end int32) {
		c.nodes[n].list = append(c.nodes[n].list, c.seq(c.rep(before, least, most), other, c.rep(after, rest, end), m.close))
	}
	for i := range limit {
		end := int32(unlimited)
		if s.items.most != unlimited {
			end = s.items.most - i - 1
		}
		add(i, i, max(0, s.items.least-i-1), end)
	}
	if s.items.most == unlimited {
		add(limit, unlimited, 0, unlimited)
	}
	return c.seq(m.open, n), nil
}

// hasSome reports whether an array has the item that a shape demands.
func (c *compiler) hasSome(s *shape, v *value, loose bool) (bool, error) {
	if s.some == nil {
		return true, nil
	}
	shapes, err := c.shapes(one(s.some))
	if err != nil {
		return false, err
	}
	for _, m := range v.list {
		if ok, err := c.fitsAny(shapes, m, loose); err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}
