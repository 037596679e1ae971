package jinja

import (
	"cmp"
	"fmt"
	"iter"
	"math"
)

// Map is a mapping that keeps its keys in the order they were first set, as
// Python's dict does. The zero Map is empty and ready to use; a nil *Map is an
// empty one that cannot be set. A Map is not safe for use while it is being
// changed.
type Map struct {
	entries []entry
	index   map[mapKey]int // nil while there are few entries
}

type entry struct{ key, value Value }

// mapKey is equal for keys that are equal in Python.
type mapKey struct {
	kind Kind
	num  uint64
	str  string
}

// Below this many entries a walk over them is quicker than a hash table.
const mapIndexFrom = 9

// Set sets the value of key. An existing key keeps its place.
func (m *Map) Set(key string, v Value) {
	m.set(mapKey{kind: KindString, str: key}, String(key), v)
}

// Get returns the value of key and whether there is one.
func (m *Map) Get(key string) (Value, bool) {
	i := m.find(mapKey{kind: KindString, str: key})
	if i < 0 {
		return Value{}, false
	}
	return m.entries[i].value, true
}

// Len returns how many keys there are.
func (m *Map) Len() int {
	if m == nil {
		return 0
	}
	return len(m.entries)
}

// Any returns the keys that are strings with their values, as Go's own kind of map.
func (m *Map) Any() map[string]any {
	out := map[string]any{}
	for key, v := range m.All() {
		out[key] = v
	}
	return out
}

// All iterates over the keys that are strings, in order. A map decoded from JSON has
// no others.
func (m *Map) All() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		if m == nil {
			return
		}
		for _, e := range m.entries {
			if e.key.kind == KindString && !yield(e.key.str, e.value) {
				return
			}
		}
	}
}

// keyOf returns the identity of v as a key, and whether v may be one.
func keyOf(v Value) (mapKey, bool) {
	switch v.kind {
	case KindString, KindNone:
		return mapKey{kind: v.kind, str: v.str}, true
	case KindBool, KindInt:
		return mapKey{kind: KindInt, num: v.num, str: v.str}, true
	case KindFloat:
		if f := v.float(); f == math.Trunc(f) && math.Abs(f) < 1<<63 {
			return mapKey{kind: KindInt, num: uint64(int64(f))}, true
		}
		return mapKey{kind: KindFloat, num: v.num}, true
	}
	return mapKey{}, false
}

func (m *Map) find(k mapKey) int {
	if m == nil {
		return -1
	}
	if m.index != nil {
		if i, ok := m.index[k]; ok {
			return i
		}
		return -1
	}
	for i := range m.entries {
		if e, ok := keyOf(m.entries[i].key); ok && e == k {
			return i
		}
	}
	return -1
}

func (m *Map) set(k mapKey, key, v Value) {
	if i := m.find(k); i >= 0 {
		m.entries[i].value = v
		return
	}
	m.entries = append(m.entries, entry{key, v})
	switch n := len(m.entries); {
	case m.index != nil:
		m.index[k] = n - 1
	case n >= mapIndexFrom:
		m.index = make(map[mapKey]int, 2*n)
		for i := range m.entries {
			e, _ := keyOf(m.entries[i].key)
			m.index[e] = i
		}
	}
}

// get looks a key up, and charges for its whole length.
func (r *run) get(m *Map, k mapKey) (v Value, ok bool, err error) {
	if err := r.scan(len(k.str)); err != nil {
		return Value{}, false, err
	}
	if i := m.find(k); i >= 0 {
		return m.entries[i].value, true, nil
	}
	return Value{}, false, nil
}

// put is m[key] = v for a map that a template makes.
func (r *run) put(m *Map, key, v Value) error {
	k, ok := keyOf(key)
	if !ok {
		return fmt.Errorf("a %s cannot be the key of a dict here", key.typeName())
	}
	if err := cmp.Or(r.allocList(3), r.scan(len(k.str))); err != nil {
		return err
	}
	m.set(k, key, v)
	return nil
}

func (r *run) keys(m *Map) ([]Value, error) {
	if err := r.allocList(m.Len()); err != nil {
		return nil, err
	}
	keys := make([]Value, m.Len())
	for i := range keys {
		keys[i] = m.entries[i].key
	}
	return keys, nil
}

func (r *run) values(m *Map) ([]Value, error) {
	if err := r.allocList(m.Len()); err != nil {
		return nil, err
	}
	values := make([]Value, m.Len())
	for i := range values {
		values[i] = m.entries[i].value
	}
	return values, nil
}

// pairs returns the (key, value) tuples of m.
func (r *run) pairs(m *Map) ([]Value, error) {
	if err := r.allocList(4 * m.Len()); err != nil {
		return nil, err
	}
	pairs := make([]Value, m.Len())
	for i := range pairs {
		pairs[i] = tuple(m.entries[i].key, m.entries[i].value)
	}
	return pairs, nil
}
