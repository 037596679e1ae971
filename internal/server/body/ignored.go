package body

import (
	"fmt"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/server/generate"
)

// Ignored is the header that names the ignored parts of a request.
const Ignored = "Foretoken-Ignored"

// Limits of the header: clients choose the names in it.
const (
	maxIgnored     = 32 // names
	maxIgnoredName = 64 // bytes of one
)

// settle names the fields that no protocol has read of the objects from one on, or makes an error of
// the first.
func (d *document) settle(from int) {
	for _, o := range d.objects[from:] {
		for i := range o.fields {
			f := &o.fields[i]
			switch {
			case f.known || o.all || d.err != nil:
			case d.strict:
				d.err = generate.NotSupported(o.join(string(f.name)), "this field is not supported: leave it out")
			default:
				d.ignore(func() string { return o.join(string(f.name)) })
			}
		}
	}
	clear(d.objects[from:])
	d.objects = d.objects[:from]
}

// ignore records the path of an ignored value.
func (d *document) ignore(path func() string) {
	if len(d.ignored) == maxIgnored {
		d.more++ // perhaps of a name that is there
		return
	}
	if name := plainName(path()); !slices.Contains(d.ignored, name) {
		d.ignored = append(d.ignored, name)
	}
}

// nameIgnored writes the header.
func (d *document) nameIgnored() {
	if d.err != nil || len(d.ignored) == 0 || d.header == nil {
		return
	}
	slices.Sort(d.ignored)
	names := strings.Join(d.ignored, ", ")
	if d.more > 0 {
		names += fmt.Sprintf(", and %d more", d.more)
	}
	d.header.Set(Ignored, names)
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
