package kernel

import (
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// inputBits are of a rotation of several rows and of one.
func inputBits(_ testing.TB, b *bitsOf, set *Set) {
	const rows, cols, rounds = 17, 256, 5
	var pairs []uint8
	for range rounds * cols / dtype.RotationGroup {
		for _, p := range b.rng.Perm(dtype.RotationGroup) {
			pairs = append(pairs, uint8(p))
		}
	}
	in := NewInput(dtype.NewRotation(b.numbers(cols, 2), b.numbers(rounds*cols/2, 3), pairs))
	y := make([]float32, rows*cols)
	set.TransformRows(y, b.tensor(rows, cols), in, &Scratch{})
	b.add(y...)
}
