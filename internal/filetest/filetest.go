// Package filetest reads and writes files and JSON of tests. A failure ends the test.
package filetest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Read returns the content of the file at path.
func Read(tb testing.TB, path string) []byte {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// Write writes data to the file at path, makes the folders above it and returns path.
func Write[T ~string | ~[]byte](tb testing.TB, path string, data T) string {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// Folder writes files to a temporary folder and returns its path. The keys are paths with slashes.
func Folder[T ~string | ~[]byte](tb testing.TB, files map[string]T) string {
	tb.Helper()
	dir := tb.TempDir()
	for name, data := range files {
		Write(tb, filepath.Join(dir, filepath.FromSlash(name)), data)
	}
	return dir
}

// Encode returns v as JSON.
func Encode(tb testing.TB, v any) []byte {
	tb.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// Decode reads JSON into v.
func Decode[T ~string | ~[]byte](tb testing.TB, text T, v any) {
	tb.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		tb.Fatal(err)
	}
}
