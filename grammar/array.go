package grammar

// readItems reads items: a schema of all items behind prefixItems or, as drafts before
// 2020-12 have it, a list of schemas of the first ones.
func (s *shape) readItems(v *value) error {
	s.constrained = true
	if v.kind != array {
		return isSchema(v)
	}
	if v.parent.member("prefixItems") != nil {
		return v.errorf("a list of schemas in items cannot be combined with prefixItems; leave one out")
	}
	if more := v.parent.member("additionalItems"); more != nil {
		if err := isSchema(more); err != nil {
			return err
		}
	}
	return eachSchema(v)
}

// places are the schemas of the first items, one for each, and the schema of
// all items behind them, or nil. The keyword additionalItems applies only
// beside a list.
func (v *value) places() (first []*value, more *value) {
	items := v.member("items")
	if items != nil && items.kind == array {
		return items.list, v.member("additionalItems")
	}
	if p := v.member("prefixItems"); p != nil {
		first = p.list
	}
	return first, items
}

// array is the node of arrays. It is built from the end: the nodes after item i must exist
// before it.
func (c *compiler) array(s *shape) (int32, error) {
	m, err := c.marks(arrayOpen, arrayClose, arrayEmpty)
	if err != nil {
		return 0, err
	}
	if s.some != nil {
		return c.someArray(s, m)
	}
	if s.unique != nil && s.items.most > 1 {
		return c.uniqueArray(s, m)
	}
	prefix := int32(0) // places with a separate schema
	for _, v := range s.schemas {
		first, _ := v.places()
		prefix = max(prefix, int32(len(first)))
	}
	prefix = min(prefix, s.items.most)
	item, err := c.value(s.item(prefix))
	if err != nil {
		return 0, err
	}
	more := func(n int32) int32 { // how many of items may follow n of them
		if s.items.most == unlimited {
			return unlimited
		}
		return s.items.most - n
	}
	// rest follows i items, some follows them if another item comes.
	rest := c.seq(c.rep(c.seq(m.comma, item), max(0, s.items.least-prefix), more(prefix)), m.close)
	some := c.alt()
	if more(prefix) > 0 {
		again := c.rep(c.seq(m.comma, item), max(0, s.items.least-prefix-1), more(prefix+1))
		some = c.seq(item, again, m.close)
	}
	for i := prefix - 1; i >= 0; i-- {
		first, err := c.value(s.item(i))
		if err != nil {
			return 0, err
		}
		some = c.seq(first, rest)
		rest = c.alt(c.seq(m.comma, some))
		if i >= s.items.least {
			c.nodes[rest].list = append(c.nodes[rest].list, m.close)
		}
	}
	body := []int32{some}
	if s.items.least == 0 {
		body = append(body, m.empty)
	}
	return c.seq(m.open, c.alt(body...)), nil
}

// item is the schemas of item i.
func (s *shape) item(i int32) []*value {
	var list []*value
	for _, v := range s.schemas {
		first, more := v.places()
		switch {
		case int(i) < len(first):
			list = append(list, first[i])
		case more != nil:
			list = append(list, more)
		}
	}
	return list
}
