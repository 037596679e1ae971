package golden

import (
	"archive/zip"
	"io"
	"path"
	"path/filepath"
	"sync"
	"testing"
)

var formats struct {
	sync.Once
	all map[string]map[string]string
	err error
}

// readFormats reads the folders of an archive by name.
func readFormats(archive string) (map[string]map[string]string, error) {
	r, err := zip.OpenReader(archive)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // opened for reading
	all := map[string]map[string]string{}
	for _, f := range r.File {
		in, err := f.Open()
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(in)
		if err != nil {
			return nil, err
		}
		folder, name := path.Split(f.Name)
		folder = path.Clean(folder)
		if all[folder] == nil {
			all[folder] = map[string]string{}
		}
		all[folder][name] = string(b)
	}
	return all, nil
}

// Formats are folders of a few modules each in the weight formats of other tools: files by name, by folder name.
// expected.safetensors has per module M in float32: M.weight, the decoded matrix; M.x, rows of inputs; M.y, the
// products, computed in float64. With ParoQuant M.weight_rotated is the decoded matrix and M.x_rotated its input.
func Formats(t testing.TB) map[string]map[string]string {
	t.Helper()
	formats.Do(func() {
		formats.all, formats.err = readFormats(filepath.Join(root(t), "internal", "golden", "testdata", "formats.zip"))
	})
	if formats.err != nil {
		t.Fatal(formats.err)
	}
	return formats.all
}
