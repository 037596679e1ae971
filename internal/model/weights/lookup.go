package weights

import (
	"slices"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/rescue"
)

// lookupPart is the name of tables that stay in their file in a Survey: a token reads one row.
const lookupPart = "layer table"

// Rows is a matrix that stays in its file. The host looks rows up; no device has it.
type Rows struct {
	m     dtype.Matrix
	stand int // rows that a generated table repeats; 0: the table has all rows
}

// Read writes the rows of the given numbers into dst, one after another. A negative number stands for row 0. Rows are only decoded, so
// they have the bits that Embed has on a device.
func (r *Rows) Read(dst []float32, rows []int32) error {
	const worth = 16 // rows for a goroutine
	return rescue.Deal(len(rows), 1, worth, func(from, to int) error {
		for i := from; i < to; i++ {
			row := int(max(rows[i], 0))
			if r.stand > 0 {
				row %= r.stand
			}
			r.m.Row(dst[i*r.m.Cols:(i+1)*r.m.Cols], row)
		}
		return nil
	})
}

// Cols is the numbers of a row.
func (r *Rows) Cols() int { return r.m.Cols }

// lookup leaves a matrix where it is.
func (l *Loader) lookup(w *Weight) (Rows, error) {
	stack, err := l.from.matrices(w)
	if err != nil {
		return Rows{}, err
	}
	r := Rows{m: stack[0]}
	if r.m.Rows < w.Rows {
		r.stand = r.m.Rows
	}
	l.kept = append(l.kept, l.from.keep(&r.m))
	return r, nil
}

// ones are n ones.
func ones(n int) []float32 { return slices.Repeat([]float32{1}, n) }
