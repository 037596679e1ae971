package tokenizer

import (
	"maps"
	"slices"
)

// Added lists the ids of the added tokens, ascending, special or not.
func (t *Tokenizer) Added() []int32 { return slices.Sorted(maps.Values(t.added)) }
