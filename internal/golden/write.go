package golden

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Write makes dir a checkpoint folder: config.json with the given text, and one
// model.safetensors with the tensors in float32. It ends the test if it cannot.
func Write(tb testing.TB, dir string, config []byte, tensors []SpecTensor) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := writeTensors(filepath.Join(dir, "model.safetensors"), tensors); err != nil {
		tb.Fatal(err)
	}
}

func writeTensors(path string, tensors []SpecTensor) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	decls := make([]checkpoint.Decl, len(tensors))
	for i, t := range tensors {
		decls[i] = checkpoint.Decl{Name: t.Name, Type: dtype.F32, Shape: t.Shape}
	}
	buffered := bufio.NewWriter(f)
	w, err := checkpoint.NewWriter(buffered, decls, nil)
	if err != nil {
		return err
	}
	for _, t := range tensors {
		data := make([]byte, len(t.Values)*dtype.F32.Size())
		dtype.FromF32(data, dtype.F32, t.Values)
		if err := w.WriteTensor(t.Name, data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return buffered.Flush()
}

// unpackBytes undoes the compression of a file of numbers in the repository: first bytes of all numbers
// together, then second ones and so on, each by gzip. First bytes have signs and exponents, which have few values, and last
// bytes are almost random. If width does not divide the length, some of these parts are shorter by one.
func unpackBytes(packed []byte, width int) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	planes, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	data := make([]byte, len(planes))
	for place := range width {
		for i := place; i < len(data); i += width {
			data[i], planes = planes[0], planes[1:]
		}
	}
	return data, nil
}
