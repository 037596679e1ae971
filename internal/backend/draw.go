package backend

// Drawer is a device that can draw tokens from logits itself, and feed them to the next call of a
// network: several draft tokens then take one round trip. A token that is drawn is what package
// sample draws from the same row.
type Drawer interface {
	// Draw draws an id from each row of logits. Row i of ids, [rows, 1] of type F32, is the id as
	// a number, -1 if the row has no number.
	Draw(ids, logits Tensor, draws []Draw)
	// EmbedDrawn is Embed of ids that Draw has written; any row of the table for -1.
	EmbedDrawn(dst Tensor, table Weight, ids Tensor)
}

// Draw is how to draw from a row of logits.
type Draw struct {
	Cols        int     // how many columns count, from the first on; 0: all
	Temperature float64 // 0: the most likely id
	Noise       uint64  // of the position: what ids compete with
}
