package foretoken

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/rescue"
)

// defaultMaxDisk bounds the cache's folder where Options do not.
const defaultMaxDisk = 10 << 30

// weightRecords is the folder, inside that of the cache, with the digests of weight files.
// They are not stored beside the files themselves: those may be in a cache that other programs
// share, or where nothing can be written, and the cache's folder is there and ours whenever
// digests are needed.
const weightRecords = ".weights"

// openDisk opens the folder in which the cache outlives the process.
func (m *Model) openDisk(o Options, c *checkpoint.Checkpoint, sum *summing) (*prefix.Disk, error) {
	size := o.PrefixCache.MaxDisk
	if size == 0 {
		size = defaultMaxDisk
	}
	weights, err := sum.wait()
	if err == nil {
		err = c.Unchanged() // what was loaded is what was hashed
	}
	if err != nil {
		return nil, err
	}
	if weights.Hashed > 0 {
		m.log.Info(fmt.Sprintf("%s: hashed %.1f MB of weights for the prefix cache in %.2f s, beside loading them", m.name, float64(weights.Hashed)/1e6, sum.took.Seconds()))
	}
	return prefix.OpenDisk(o.PrefixCache.Dir, prefix.DiskOptions{
		Bytes: size, Fingerprint: m.identity(weights.ID, o.Quantize), Log: m.log,
	})
}

// arithmetic is the name of ours, for tests.
var arithmetic = backend.Arithmetic

// identity names all that decides the bits of a cached prefix, besides its tokens and the layout
// of the state, which package prefix adds: the type of keys and values, and whether there is a
// draft state, are part of that.
func (m *Model) identity(weights string, quantize int) string {
	return fmt.Sprintf("weights %s, %s quantized to %d, arithmetic %s", weights, m.info.Compute, quantize, arithmetic())
}

// summing is the hash over a checkpoint's files, made while they are loaded.
type summing struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when what follows is set
	sum    checkpoint.Sum
	err    error
	took   time.Duration
}

// startSum begins to hash a checkpoint, of which the folder of the cache may have records. It
// must be stopped before the checkpoint is closed. Without a folder nobody needs the hash.
func startSum(c *checkpoint.Checkpoint, dir string) *summing {
	if dir == "" {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &summing{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer rescue.To(&s.err)
		start := time.Now()
		s.sum, s.err = c.Sum(ctx, filepath.Join(dir, weightRecords))
		s.took = time.Since(start)
	}()
	return s
}

// wait returns the hash when it is there.
func (s *summing) wait() (checkpoint.Sum, error) {
	<-s.done
	return s.sum, s.err
}

// stop ends the hashing and returns when nothing of it runs.
func (s *summing) stop() {
	if s != nil {
		s.cancel()
		<-s.done
	}
}
