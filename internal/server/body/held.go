package body

import "io"

// held is a body that has been read.
type held struct{ data []byte }

// Held is a body that has been read into memory. [Read] takes its bytes and releases it: the
// body of a request is not kept while it is answered, above all not its images.
func Held(data []byte) io.ReadCloser { return &held{data} }

// Read implements io.Reader.
func (h *held) Read(to []byte) (int, error) {
	if len(h.data) == 0 {
		return 0, io.EOF
	}
	n := copy(to, h.data)
	h.data = h.data[n:]
	return n, nil
}

// Close implements io.Closer.
func (h *held) Close() error { return nil }

// readAll reads a body, once.
func readAll(r io.Reader) ([]byte, error) {
	if h, ok := r.(*held); ok {
		data := h.data
		h.data = nil
		return data, nil
	}
	return io.ReadAll(r)
}
