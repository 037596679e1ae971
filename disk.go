package foretoken

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/private"
	"github.com/foretoken/foretoken/internal/rescue"
)

// defaultMaxDisk bounds the cache's folder where Options do not.
const defaultMaxDisk = 10 << 30

// weightRecords is the folder, inside that of the cache, with the digests of weight files.
// They are not stored beside the files themselves: those may be in a cache that other programs
// share, or in a read-only folder, and the cache's folder exists and is ours whenever
// digests are needed.
const weightRecords = ".weights"

// openTiers opens the folder in which the cache outlives the process, and the store that it shares
// with other processes, if they are configured. Salts are mixed with the secret of the store, which all
// its users have, or else with that of the folder.
func (m *Model) openTiers(ctx context.Context, o Options, c *checkpoint.Checkpoint, sum *summing) (err error) {
	p := &o.PrefixCache
	if o.shared.Open == nil || p.Off {
		if m.secret, err = openSecret(p.Dir); err != nil || p.Dir == "" || p.Off {
			return err
		}
	} else if err = m.openStore(ctx, o.shared); err != nil {
		return err
	}
	weights, err := sum.wait()
	if err == nil {
		err = c.Unchanged() // the loaded weights are the hashed ones
	}
	if err != nil {
		return err
	}
	if weights.Hashed > 0 {
		m.log.Info(fmt.Sprintf("%s: hashed %.1f MB of weights for the prefix cache in %.2f s, beside loading them", m.name, float64(weights.Hashed)/1e6, sum.took.Seconds()))
	}
	fingerprint := m.identity(weights.ID, o.Quantize)
	if m.store != nil {
		m.shared = store.NewShared(m.store, store.SharedOptions{Fingerprint: fingerprint, Uses: o.shared.Uses, Log: m.log})
	}
	if p.Dir == "" {
		return nil
	}
	size := p.MaxDisk
	if size == 0 {
		size = defaultMaxDisk
	}
	m.disk, err = store.OpenDisk(p.Dir, store.DiskOptions{Bytes: size, Fingerprint: fingerprint, Log: m.log})
	return err
}

// openStore opens the store that the cache shares with other processes.
func (m *Model) openStore(ctx context.Context, s private.Shared) error {
	opened, err := s.Open(ctx)
	if err == nil {
		m.store = opened
		m.secret, err = opened.OpenSecret(ctx)
	}
	if err != nil {
		return fmt.Errorf("foretoken: prefix cache: %w", err)
	}
	return nil
}

// closeTiers closes the folder and the store of openTiers.
func (m *Model) closeTiers() {
	if m.disk != nil {
		m.disk.Close()
	}
	if m.shared != nil {
		m.shared.Close()
	}
	if m.store != nil {
		m.store.Close()
	}
}

// arithmetic is the name of the arithmetic; tests replace it.
var arithmetic = backend.Arithmetic

// identity names everything that affects the bits of a cached prefix, besides its tokens and the layout
// of the state, which package prefix adds: the type of keys and values, and whether there is a
// draft state, are part of that.
func (m *Model) identity(weights string, quantize int) string {
	id := fmt.Sprintf("weights %s, %s quantized to %d, arithmetic %s", weights, m.info.Compute, quantize, arithmetic())
	if m.drafterSum != "" {
		id += ", drafter " + m.drafterSum
	}
	return id
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
// must be stopped before the checkpoint is closed. With the cache in memory alone it is not needed.
func startSum(ctx context.Context, c *checkpoint.Checkpoint, o *Options) *summing {
	p := &o.PrefixCache
	if p.Dir == "" && o.shared.Open == nil {
		return nil
	}
	records := ""
	if p.Dir != "" {
		records = filepath.Join(p.Dir, weightRecords)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &summing{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer rescue.To(&s.err)
		start := time.Now()
		s.sum, s.err = c.Sum(ctx, records)
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
