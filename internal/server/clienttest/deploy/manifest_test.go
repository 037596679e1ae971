// Package deploy_test reads the manifests of the folder deploy with a library for YAML.
package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"
)

// That they fit the program is tested in cmd/foretoken.
func TestManifestsAreYAML(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.yaml", "kubernetes/*.yaml", "kubernetes/gateway/*.yaml", "gateway/*.yaml"} {
		found, err := filepath.Glob(filepath.Join("../../../../deploy", pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 20 {
		t.Errorf("only %q", files)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := yaml.NewDecoder(bytes.NewReader(data))
		var first, more map[string]any // a key twice is an error
		if err := d.Decode(&first); err != nil || len(first) == 0 {
			t.Errorf("%s: %v, %v", file, first, err)
		}
		if err := d.Decode(&more); !errors.Is(err, io.EOF) {
			t.Errorf("%s has more than one document: %v", file, err)
		}
	}
}
