package backend

// Drawer is a device that can draw tokens from logits itself, and feed them to the next call of a
// network: several draft tokens then take one round trip.
type Drawer interface {
	// Draw draws an id from each row of logits. Row i of drawn, [rows, 3] of type F32, is a Drawn of
	// package sample with its bits: the id as a number, its probability, and 1 if the draw is exact.
	// tokens are the ids of columns as numbers, ascending: one row for all rows of logits, or one for each. The zero
	// Tensor: the number of a column is its id.
	Draw(drawn, logits, tokens Tensor, draws []Draw)
	// EmbedDrawn is Embed of the ids in the first column of drawn; any row of the table for -1.
	EmbedDrawn(dst Tensor, table Weight, drawn Tensor, factor float32)
	// Candidates lists the highest numbers of each row of logits among the columns that count by its draw, of equal numbers
	// the lower columns. Row i of ids is the columns as numbers, ascending, and row i of best their logits. A row with
	// fewer numbers than columns of ids repeats the first column, 0 if there is none, with minus infinity.
	Candidates(ids, best, logits Tensor, draws []Draw)
	// Score adds to column c of row i of scores the sum of left[i]*mid[i]*right[i*cols+c] over their columns, in order
	// and with every result rounded to float32, where cols is the number of columns of scores.
	Score(scores, left, mid, right Tensor)
}

// Draw is how to draw from a row of logits: package sample's Plain.
type Draw struct {
	Cols        int     // how many columns count, from the first on; 0: all
	Temperature float64 // 0: the most likely id, whose probability is that of temperature 1
	Noise       uint64  // of the position: added to the scores of ids
	TopK        int     // 0: all
	TopP        float64 // 0 and 1: all
	Levels      int     // how many levels of topk count; 0: all
	// Of the blocks of RowBlock columns from First on, only those that Own lists count, ascending.
	// 0: all count.
	First int
	Own   []int32
}
