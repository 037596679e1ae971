package server

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestReadAllSpendsWhatComes reads bodies whose declared length is right, unknown or wrong.
func TestReadAllSpendsWhatComes(t *testing.T) {
	for _, size := range []int{0, 1, 4<<10 - 1, 4 << 10, 4<<10 + 1, 100_000} {
		body := strings.Repeat("x", size)
		for _, declared := range []int64{-1, int64(size), 1 << 40} {
			got, err := readAll(iotest.HalfReader(strings.NewReader(body)), declared)
			most := max(4<<10, 2*size)
			if declared == int64(size) {
				most = max(4<<10, size+1)
			}
			if err != nil || string(got) != body || cap(got) > max(most, 8<<10) {
				t.Errorf("%d bytes, %d declared: %d bytes in %d, %v", size, declared, len(got), cap(got), err)
			}
		}
	}
	if got, err := readAll(io.MultiReader(bytes.NewReader([]byte("x")), iotest.ErrReader(io.ErrUnexpectedEOF)), 5); err != io.ErrUnexpectedEOF { //nolint:errorlint // handed through
		t.Errorf("%q, %v, want the error", got, err)
	}
}
