package foretoken

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// saltSecret is the file, inside the cache's folder, with the secret for salts.
const saltSecret = ".salt"

// openSecret reads the secret of a folder, which is created if necessary. Without a folder it
// is random for this process.
func openSecret(dir string) (secret [sha256.Size]byte, err error) {
	if dir == "" {
		_, _ = rand.Read(secret[:]) // never fails, by its contract
		return secret, nil
	}
	path := filepath.Join(dir, saltSecret)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeSecret(dir, path); err == nil {
			data, err = os.ReadFile(path)
		}
	}
	if err != nil {
		return secret, fmt.Errorf("foretoken: prefix cache: %w", err)
	}
	if len(data) != len(secret) {
		return secret, fmt.Errorf("foretoken: prefix cache: %s has %d bytes, want %d: remove it; prefixes stored for salts and keys are then lost", path, len(data), len(secret))
	}
	return [sha256.Size]byte(data), nil
}

// makeSecret creates the file atomically, unless another process is faster: then its secret is
// used.
func makeSecret(dir, path string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, saltSecret+"*.tmp") // only its owner can read it
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // it has another name by then, or is of no use
	var secret [sha256.Size]byte
	_, _ = rand.Read(secret[:]) // never fails, by its contract
	_, err = f.Write(secret[:])
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	err = os.Link(f.Name(), path)
	switch {
	case err == nil || errors.Is(err, fs.ErrExist):
		return nil
	default: // there are file systems without links
		return os.Rename(f.Name(), path)
	}
}
