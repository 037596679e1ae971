package body

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/server/generate"
)

// Ignored is the header that names what was ignored of a request.
const Ignored = "Foretoken-Ignored"

// Limits of the header: clients choose the names in it.
const (
	maxIgnored     = 32 // names
	maxIgnoredName = 64 // bytes of one
)

type strictKey struct{}

// WithStrict returns a context for requests whose unknown and unsupported fields are errors.
func WithStrict(ctx context.Context) context.Context {
	return context.WithValue(ctx, strictKey{}, true)
}

func isStrict(ctx context.Context) bool { return ctx.Value(strictKey{}) != nil }

// ignore names the fields that no protocol has read, or makes an error of the first.
func (d *document) ignore() {
	seen := map[string]bool{}
	var names []string
	more := 0
	note := func(name string) {
		switch name = plainName(name); {
		case seen[name]:
		case len(names) == maxIgnored:
			more++ // some of them perhaps more than once: what was seen is bounded too
		default:
			seen[name] = true
			names = append(names, name)
		}
	}
	for _, o := range d.objects {
		for _, name := range slices.Sorted(maps.Keys(o.fields)) {
			switch {
			case o.known[name]:
			case d.strict:
				d.err = generate.NotSupported(o.join(name), "this field is not known here: leave it out")
				return
			default:
				note(o.join(name))
			}
		}
	}
	for _, name := range d.dropped {
		note(name)
	}
	if len(names) == 0 || d.header == nil {
		return
	}
	if more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	d.header.Set(Ignored, strings.Join(names, ", "))
}

// plainName is the path of a field without the numbers of elements, and of characters that may
// stand in a header and mean nothing there or in a log.
func plainName(path string) string {
	var b strings.Builder
	index := false
	for _, r := range path {
		switch {
		case index && r >= '0' && r <= '9':
			continue
		case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-[]=$/:@", r):
			b.WriteRune(r)
		default:
			b.WriteByte('?')
		}
		index = r == '['
		if b.Len() >= maxIgnoredName {
			return b.String() + "..."
		}
	}
	return b.String()
}
