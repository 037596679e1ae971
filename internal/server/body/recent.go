package body

import (
	"container/list"
	"sync"
)

// Recent keeps the most recently used values of tenants in memory. It may be used from several goroutines.
type Recent[T any] struct {
	maxValues, maxBytes int
	size                func(v *T, n int) int

	mu    sync.Mutex // protects what follows
	byID  map[string]*list.Element
	order list.List // of *recent[T], the last used in front
	bytes int
}

type recent[T any] struct {
	owner string
	ids   []string
	value *T
}

// NewRecent keeps at most maxValues, of maxBytes. size returns the bytes that the value adds with n = 1, or
// removes, as a negative number, with n = -1.
func NewRecent[T any](maxValues, maxBytes int, size func(v *T, n int) int) *Recent[T] {
	return &Recent[T]{maxValues: maxValues, maxBytes: maxBytes, size: size, byID: map[string]*list.Element{}}
}

// Put adds a value under ids and drops the least recently used until all fit. One that is too large by
// itself is not kept.
func (r *Recent[T]) Put(owner string, v *T, ids ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.order.PushFront(&recent[T]{owner, ids, v})
	for _, id := range ids {
		r.byID[id] = e
	}
	r.bytes += r.size(v, 1)
	for r.bytes > r.maxBytes || r.order.Len() > r.maxValues {
		r.drop(r.order.Back())
	}
}

// Get returns the value of owner under an id, or nil.
func (r *Recent[T]) Get(owner, id string) *T {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.byID[id]
	if e == nil || e.Value.(*recent[T]).owner != owner {
		return nil
	}
	r.order.MoveToFront(e)
	return e.Value.(*recent[T]).value
}

// Remove deletes the value of owner under an id, and reports whether there was one.
func (r *Recent[T]) Remove(owner, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.byID[id]
	if e == nil || e.Value.(*recent[T]).owner != owner {
		return false
	}
	r.drop(e)
	return true
}

// Len returns the number of values, of their ids, and their bytes.
func (r *Recent[T]) Len() (values, ids, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.order.Len(), len(r.byID), r.bytes
}

func (r *Recent[T]) drop(e *list.Element) {
	x := r.order.Remove(e).(*recent[T])
	for _, id := range x.ids {
		delete(r.byID, id)
	}
	r.bytes += r.size(x.value, -1)
}
