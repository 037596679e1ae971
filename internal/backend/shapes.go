package backend

import "fmt"

// Checks of the shapes of operations, for all devices: each panics if tensors do not fit together.

// CheckConvolve checks Convolve.
func CheckConvolve(dst, x Tensor, c *Convolution) {
	taps := c.Base.Rows
	if dst.Rows != x.Rows || dst.Cols != x.Cols || c.Base.Cols != x.Cols || c.Delta.Rows != x.Rows || taps == 0 ||
		c.Delta.Cols == 0 || c.Delta.Cols%taps != 0 || x.Cols%(c.Delta.Cols/taps) != 0 || dst == x {
		panic(fmt.Sprintf("backend: convolution of %d×%d with kernels %d×%d and %d×%d into %d×%d",
			x.Rows, x.Cols, c.Base.Rows, c.Base.Cols, c.Delta.Rows, c.Delta.Cols, dst.Rows, dst.Cols))
	}
}
