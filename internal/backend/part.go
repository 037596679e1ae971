package backend

import "github.com/foretoken/foretoken/internal/dtype"

// Part is a part of a model that is computed by one device, with its weights and its state. A
// split device puts each part on one of its devices.
type Part struct {
	Kind  PartKind
	Layer int // number of the layer, of LayerPart and ExpertsPart
}

// PartKind is the kind of a Part.
type PartKind uint8

// The kinds of parts.
const (
	LayerPart     PartKind = iota // a layer, but for its experts
	ExpertsPart                   // all that one Experts has of a layer
	EmbeddingPart                 // the matrix that tokens come in through
	OutputPart                    // the last norm, and the output matrix
	HeadPart                      // the multi-token-prediction head
	TowerPart                     // the vision tower
)

// Parted is a device that is several.
type Parted interface {
	Backend
	// At is the device for a part: its memory and weights are where the part
	// is computed. Everything else may be requested from either.
	At(p Part) Backend
	// AllocParts is Alloc of one row that has cols[i] columns of parts[i], one after another.
	// Each is only where the part is computed.
	AllocParts(t dtype.Type, parts []Part, cols []int) (Tensor, error)
	// FreeParts is how many bytes such rows may still take: until one of the devices is full.
	FreeParts(parts []Part, cols []int) int64
}

// At is the device for a part of a model: b itself, unless it is split.
func At(b Backend, p Part) Backend {
	if d, ok := b.(Parted); ok {
		return d.At(p)
	}
	return b
}

// AllocParts is Alloc of one row that has cols[i] columns of parts[i].
func AllocParts(b Backend, t dtype.Type, parts []Part, cols []int) (Tensor, error) {
	if d, ok := b.(Parted); ok {
		return d.AllocParts(t, parts, cols)
	}
	n := 0
	for _, c := range cols {
		n += c
	}
	return b.Alloc(t, 1, n)
}

// FreeParts is about how many bytes of rows that AllocParts cuts so there is memory for.
func FreeParts(b Backend, parts []Part, cols []int) int64 {
	if d, ok := b.(Parted); ok {
		return d.FreeParts(parts, cols)
	}
	return b.FreeMemory()
}
