package cpu

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Pages of 4 bits are unpacked to pages of 8 bits, one head at a time, for all queries of a group.

// packedKeys are rows of keys of 4 bits.
func (op *attendOp) packedKeys(rows pageRows, width int) kernel.PackedKeys {
	groups := kernel.CodedGroups(width)
	codes := groups * backend.PageTokens * backend.CodedGroup / 2
	ranges := groups * backend.PageTokens * 4
	return kernel.PackedKeys{Codes: rows[:codes].bytes(), Ranges: rows[codes:][:ranges].bytes(), Scales: rows[codes+ranges:].floats()}
}

// packedValues are rows of values of 4 bits and their scales.
func (op *attendOp) packedValues(rows pageRows) (values []byte, scales []float32) {
	n := len(rows) - backend.PageTokens*dtype.F32.Size()
	return rows[:n].bytes(), rows[n:].floats()
}

// storePacked is store for pages of 4 bits.
func (op *attendOp) storePacked(buf *codedBuffers, rows pageRows, i int, x []float32, key int) {
	if key > 0 {
		op.set.PutPackedKey(op.packedKeys(rows, key), i, x, &buf.packed, &buf.padded, &buf.codes)
		return
	}
	values, scales := op.packedValues(rows)
	op.set.PutPackedValue(values, scales, i, x, &buf.packed, &buf.codes)
}

// codedRows are rows of a page, or if it is of 4 bits those of the page of 8 bits that it stands for.
func (op *attendOp) codedRows(buf *codedBuffers, page backend.Tensor, part, h int) pageRows {
	rows := op.rows(page, part, h)
	if op.at.Type != dtype.I4 || len(rows) == 0 {
		return rows
	}
	k, to := &op.set.Vector.Coded, &buf.parts[part]
	if part == 1 && op.a.Latent == 0 {
		values, scales := op.packedValues(rows)
		groups := kernel.CodedGroups(op.value)
		n := groups * backend.CodedGroup * backend.PageTokens
		*to = kernel.Grow(*to, n+len(rows)-len(values))
		k.UnpackValues((*to)[:n], values, groups)
		n = op.columns() * backend.PageTokens // columns that pages of 8 bits do not have are overwritten
		copy((*to)[n:].floats(), scales)
		return *to
	}
	width := op.key
	if part == 1 {
		width = op.tail
	}
	p, groups := op.packedKeys(rows, width), kernel.CodedGroups(width)
	n := groups * backend.CodedGroup * backend.PageTokens
	*to = kernel.Grow(*to, n+len(p.Scales)*dtype.F32.Size())
	k.UnpackKeys((*to)[:n].bytes(), p.Codes, p.Ranges, groups)
	copy((*to)[n:].floats(), p.Scales)
	return *to
}
