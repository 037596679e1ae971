package golden

import (
	"bytes"
	"compress/gzip"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
)

// Write makes dir a checkpoint folder: config.json with the given text, and one
// model.safetensors with the tensors in float32. It ends the test if it cannot.
func Write(tb testing.TB, dir string, config []byte, tensors []SpecTensor) {
	tb.Helper()
	filetest.Write(tb, filepath.Join(dir, "config.json"), config)
	decls, contents := make([]checkpoint.Decl, len(tensors)), make([][]byte, len(tensors))
	for i, t := range tensors {
		decls[i] = checkpoint.Decl{Name: t.Name, Type: dtype.F32, Shape: t.Shape}
		contents[i] = make([]byte, len(t.Values)*dtype.F32.Size())
		dtype.FromF32(contents[i], dtype.F32, t.Values)
	}
	WriteTensors(tb, filepath.Join(dir, "model.safetensors"), decls, contents, nil)
}

// WriteTensors writes a file of tensors, and the folders that it is in.
func WriteTensors(tb testing.TB, path string, decls []checkpoint.Decl, contents [][]byte, metadata map[string]string) {
	tb.Helper()
	filetest.Write(tb, path, Tensors(tb, decls, contents, metadata))
}

// Tensors is the text of a file of tensors.
func Tensors(tb testing.TB, decls []checkpoint.Decl, contents [][]byte, metadata map[string]string) string {
	tb.Helper()
	header, err := checkpoint.FileHeader(decls, metadata)
	if err != nil {
		tb.Fatal(err)
	}
	return string(slices.Concat(append([][]byte{header}, contents...)...))
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

// Open opens the checkpoint in dir until the test ends.
func Open(tb testing.TB, dir string) *checkpoint.Checkpoint {
	tb.Helper()
	c, err := checkpoint.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}
