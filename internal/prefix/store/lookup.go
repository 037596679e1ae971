package store

import (
	"context"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
)

// look lists nodes of the store that were not looked up lately, a few at a time.
func (s *Shared) look(ctx context.Context, nodes []Key) error {
	var stale []Key
	now := time.Now()
	s.mu.Lock()
	for _, at := range nodes {
		if k := s.nodes[at]; k == nil || now.Sub(k.at) > freshFor {
			stale = append(stale, at)
		}
	}
	s.mu.Unlock()
	var group sync.WaitGroup
	errs := make([]error, len(stale))
	for i, at := range stale {
		group.Go(func() {
			s.guard("asking", func() { errs[i] = s.lookAt(ctx, at) })
		})
		if i%parallel == parallel-1 {
			group.Wait()
		}
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// lookAt lists one node. All of its files have names that begin with its key.
func (s *Shared) lookAt(ctx context.Context, at Key) error {
	items, err := s.list(ctx, page(at).prefix(), maxEnds)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.node(at)
	k.at = time.Now()
	clear(k.files)
	for _, x := range items {
		if n, ok := parseName(x.Name); ok && n.node == at && x.Size > 0 { // not foreign
			k.files[n] = x.Size
		}
	}
	return nil
}

// find looks up the nodes of a text from behind the first have tokens on. Pages are written in order, so it
// searches the deepest one; those before it are assumed to exist. Then it searches the deepest entry.
func (s *Shared) find(ctx context.Context, q *Query, have int) error {
	nodes, from := q.Nodes, 0
	if have > 0 {
		from = (have - 1) / backend.PageTokens
	}
	// Most often there is nothing at all, and one exchange shows it.
	if err := s.look(ctx, nodes[from:min(from+2, len(nodes))]); err != nil {
		return err
	}
	deepest, missing := from, len(nodes)
	for deepest+1 < missing {
		var points []int
		for i := range parallel {
			at := deepest + 1 + (missing-deepest-2)*i/(parallel-1)
			if len(points) == 0 || points[len(points)-1] != at {
				points = append(points, at)
			}
		}
		if deepest == from {
			points = []int{from + 1}
		}
		if err := s.look(ctx, pick(nodes, points)); err != nil {
			return err
		}
		for _, at := range points {
			if s.sizeOf(page(nodes[at])) == 0 {
				missing = at
				break
			}
			deepest = at
		}
	}
	s.assume(nodes[from+min(1, deepest-from):deepest], nodes[deepest])
	for last, end := deepest, max(from, deepest-q.Ends); last >= end; last -= parallel {
		first := max(last-parallel+1, end)
		if err := s.look(ctx, nodes[first:last+1]); err != nil {
			return err
		}
		for i := last; i >= first; i-- {
			for _, n := range s.entries(nodes[i]) {
				if q.end(i, n) > have {
					return s.look(ctx, nodes[1+min(q.First(q.end(i, n)), i):i+1])
				}
			}
		}
	}
	return nil
}

func pick(nodes []Key, at []int) (list []Key) {
	for _, i := range at {
		list = append(list, nodes[i])
	}
	return list
}

// assume records that the pages before an existing one exist too, with its size.
func (s *Shared) assume(nodes []Key, like Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := int64(0)
	if k := s.nodes[like]; k != nil {
		size = k.files[page(like)]
	}
	now := time.Now()
	for _, at := range nodes {
		if k := s.node(at); k.files[page(at)] == 0 && now.Sub(k.at) > freshFor {
			k.files[page(at)] = size // and is looked up before its entries are believed
		}
	}
}
