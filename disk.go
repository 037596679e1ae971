package foretoken

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/foretoken/foretoken/checkpoint"
	"github.com/foretoken/foretoken/models/tiny"
	"github.com/foretoken/foretoken/prefix"
	"github.com/foretoken/foretoken/sample"
)

// defaultCacheDisk bounds the cache's folder where nothing is said.
const defaultCacheDisk = 10 << 30

// openDisk opens the folder in which the cache outlives the process.
func (m *Model) openDisk(o Options, c *checkpoint.Checkpoint) (*prefix.Disk, error) {
	if o.CacheDisk == 0 {
		o.CacheDisk = defaultCacheDisk
	}
	identity, err := fingerprint(c)
	if err != nil {
		return nil, err
	}
	// Between two kinds of device only tolerances hold, and other arithmetic gives other bits.
	identity = fmt.Sprintf("%s %s quantised to %d, keys of %d bits, random %d", identity, m.info.Compute, o.Quantise, o.KVBits, sample.RandomVersion)
	return prefix.OpenDisk(o.CacheDir, prefix.DiskOptions{Bytes: o.CacheDisk, Fingerprint: identity, Log: m.log})
}

// Of every file of weights some samples count for its fingerprint: reading all of it would
// take as long as loading it. Training, and every way of putting weights together, changes
// numbers all over a file.
const (
	samples     = 1024
	sampleBytes = 64
)

// fingerprint tells a checkpoint from all others.
func fingerprint(c *checkpoint.Checkpoint) (string, error) {
	h := sha256.New()
	h.Write(c.Config())
	if c.Name() == Tiny {
		for _, name := range c.Files() {
			io.WriteString(h, tiny.Files()[name]) //nolint:errcheck // a hash takes everything
		}
		return fmt.Sprintf("%x", h.Sum(nil)), nil
	}
	names := c.Files()
	for _, s := range c.Sidecars {
		names = append(names, s.Files()...)
	}
	for _, name := range names {
		if !filepath.IsAbs(name) {
			name = filepath.Join(c.Name(), name)
		}
		if err := sampleFile(h, name); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// sampleFile adds a file's size and samples of it to a hash.
func sampleFile(h io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // opened for reading: nothing to lose
	info, err := f.Stat()
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%d\n", info.Size()) //nolint:errcheck // a hash takes everything
	var b [sampleBytes]byte
	for i := range int64(samples) {
		n, err := f.ReadAt(b[:], info.Size()/samples*i)
		if err != nil && err != io.EOF {
			return err
		}
		h.Write(b[:n]) //nolint:errcheck // likewise
	}
	return nil
}
