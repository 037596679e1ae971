package batch

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"
)

const (
	// maxOrder is the length of the sort key: requests that are equal for longer stay
	// in the order of the file.
	maxOrder = 16 << 10
	// Where a prompt may be cut so that the prefix is shared with another line: after its first and last
	// messages, and every cutEvery bytes. The prefix cache of a model keeps about the same.
	firstCuts, lastCuts = 2, 3
	cutEvery            = 4 << 10
)

// order is the sort key of a line, which groups lines with a common prefix: tools,
// which templates write first, and then the conversation from its first message, or the text.
// Rendered prompts would be exact, but need the model's template, and a coordinator need not
// have the model; messages are rendered one after the other, so equal bytes here are equal tokens
// there. prefixes are hashes of prefixes that other lines may share, the shortest first.
func order(body []byte) (key []byte, prefixes []uint64) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return nil, nil
	}
	var cuts []int
	for _, name := range []string{"tools", "instructions", "messages", "prompt", "input"} {
		value := fields[name]
		if name != "tools" && len(value) > 0 { // tools are a part of the first message
			cuts = append(cuts, ends(value, len(key))...)
		}
		key = append(key, value[:min(len(value), maxOrder-len(key))]...)
	}
	for at := cutEvery; at <= len(key); at += cutEvery {
		cuts = append(cuts, at)
	}
	slices.Sort(cuts)
	sum, from := fnv.New64a(), 0
	for _, at := range slices.Compact(cuts) {
		if at <= len(key) {
			_, _ = sum.Write(key[from:at]) // a hash does not fail
			prefixes, from = append(prefixes, sum.Sum64()), at
		}
	}
	return slices.Clip(key), prefixes
}

// ends are the ends of the first and the last elements of a list, or the end of a value that is not a
// list, if the value begins at at.
func ends(value json.RawMessage, at int) (list []int) {
	d := json.NewDecoder(bytes.NewReader(value))
	if t, err := d.Token(); err != nil || t != json.Delim('[') || !d.More() {
		return []int{at + len(value)}
	}
	var element json.RawMessage // one at a time: a list may have millions
	for d.More() {
		if d.Decode(&element) != nil {
			return []int{at + len(value)}
		}
		if list = append(list, at+int(d.InputOffset())); len(list) > firstCuts+lastCuts {
			list = slices.Delete(list, firstCuts, firstCuts+1)
		}
	}
	return list
}

// arrange sorts the lines, and drops prefixes that no other line has and those with
// the same lines as a longer one.
func (p *Plan) arrange() {
	shared := map[uint64]int{}
	for i := range p.Lines {
		l := &p.Lines[i]
		if l.Fault == nil {
			p.inOrder = append(p.inOrder, l)
		}
		for _, x := range l.prefixes {
			shared[x]++
		}
	}
	slices.SortStableFunc(p.inOrder, func(a, b *Line) int { return bytes.Compare(a.order, b.order) })
	for _, l := range p.inOrder {
		var kept []uint64
		for i, x := range l.prefixes {
			if shared[x] > 1 && (i+1 == len(l.prefixes) || shared[l.prefixes[i+1]] != shared[x]) {
				kept = append(kept, x)
			}
		}
		l.order, l.prefixes = nil, kept
	}
}

// hint is the hint of a line of a batch. Prefixes are separate for each owner, like caches:
// lines of one owner do not wait for lines of another.
func (l *Line) hint(r *Record) Hint {
	h := Hint{Batch: r.ID, Model: r.Fingerprint, File: contentKey(r.Input), Line: l.Number, Offset: l.Offset, Length: l.Length}
	owner := fnv.New64a()
	_, _ = owner.Write([]byte(r.Owner)) // a hash does not fail
	for i, x := range l.prefixes {
		if i > 0 {
			h.Prefixes += " "
		}
		h.Prefixes += strconv.FormatUint(x^owner.Sum64(), 36)
	}
	return h
}
