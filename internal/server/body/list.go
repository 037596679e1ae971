package body

import (
	"iter"
	"math"
)

// Fields yields all fields of an object, which has them of any name, until something is wrong with the
// request.
func (v *Value) Fields() iter.Seq2[string, *Value] {
	return func(yield func(string, *Value) bool) {
		v.open()
		v.IgnoreRest()
		for _, f := range v.fields {
			item := &Value{doc: v.doc, parent: v, name: string(f.name), index: -1}
			item.set(f.raw)
			if !yield(item.name, item) || v.doc.err != nil {
				return
			}
		}
	}
}

// Len is the number of elements of an array, 0 if there is none.
func (v *Value) Len() int {
	switch {
	case v.raw == nil:
		return 0
	case !v.IsList():
		v.wrong("an array")
		return 0
	}
	return count(v.raw, 1)
}

// AtMost is the array, or no value if it has more elements than limit.
func (v *Value) AtMost(limit int) *Value {
	if n := v.Len(); n > limit {
		v.Fault("%d elements, want at most %d", n, limit)
		return &Value{doc: v.doc, parent: v.parent, name: v.name, index: v.index}
	}
	return v
}

// First is the first element of an array, for callers that check its kind; absent if there is none.
func (v *Value) First() *Value {
	item := &Value{doc: v.doc, parent: v}
	if v.IsList() {
		for _, raw := range parts(v.raw) {
			item.set(raw)
			break
		}
	}
	return item
}

// List yields the elements of an array until the request has an error; none if there
// is no array. All of an element is to be read before the next: fields that were not read by
// then are ignored.
func (v *Value) List() iter.Seq2[int, *Value] {
	return func(yield func(int, *Value) bool) {
		n := v.Len()
		if n == 0 || !v.spend(n, 1, "elements") {
			return
		}
		i := 0
		for _, raw := range parts(v.raw) {
			item := &Value{doc: v.doc, parent: v, index: i}
			item.set(raw)
			opened := len(v.doc.objects)
			more := yield(i, item)
			v.doc.settle(opened)
			if i++; !more || v.doc.err != nil {
				return
			}
		}
	}
}

// Texts is a list of at most limit nonempty strings; empty if there is none.
func (v *Value) Texts(limit int) []string {
	texts := []string{}
	for _, item := range v.AtMost(limit).List() {
		text := item.Required().Text()
		if text == "" {
			item.Fault("the string is empty")
		}
		texts = append(texts, text)
	}
	return texts
}

// IDs is a list of whole numbers from 0 to the largest int32; nil if there is none. They are not counted
// for MaxValues.
func (v *Value) IDs() []int32 {
	n := v.Len()
	if n == 0 {
		return nil
	}
	list := make([]int32, 0, n)
	item := &Value{doc: v.doc, parent: v}
	for _, item.raw = range parts(v.raw) {
		id, ok := item.whole()
		if !ok || id < 0 || id > math.MaxInt32 {
			item.Int(0, math.MaxInt32) // which reports the error
			return nil
		}
		list = append(list, int32(id))
		item.index++
	}
	return list
}

// Admit reports whether a JSON text of v may be decoded for templates with all that is in it.
func (v *Value) Admit(text []byte) bool { return v.spend(count(text, math.MaxInt), 2, "values") }

// spend counts n values of the request times times, and reports whether they may be read.
func (v *Value) spend(n, times int, what string) bool {
	if v.doc.values += n * times; v.doc.values > MaxValues {
		v.Fault("with these %d %s, the lists and objects of the request have more than %d in all: send fewer", n, what, MaxValues)
	}
	return v.doc.err == nil
}
