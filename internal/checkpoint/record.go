package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// A record is a file with the digest of another one. It is believed only if the other one is
// at the same place, of the same size, the same on its device, and neither written nor changed
// in any other way since: times can be set back, that of the last change cannot.
type record struct {
	path  string // of the record
	of    *origin
	began time.Time // before any byte was hashed
}

// recorded is the contents of a record, as JSON.
type recorded struct {
	Path   string
	Stamp  stamp
	Sum    string
	Format int
}

const (
	recordFormat = 1
	maxRecords   = 1024
	// settled is the minimum age of the last change of a file for a record about it:
	// clocks of file systems tick, the coarsest of them every two seconds, and a
	// change within one tick of the hashing would not be detected.
	settled = 2 * time.Second
)

// now is the clock, for tests.
var now = time.Now

// newRecord is the record about a file in a folder, nil if there can be none.
func newRecord(folder string, of *origin) *record {
	if folder == "" || of.path == "" {
		return nil
	}
	// Caches of models are made of links, several of which may lead to one file.
	path, err := filepath.EvalSymlinks(of.path)
	if err != nil {
		return nil
	}
	name := sha256.Sum256([]byte(path))
	return &record{
		path: filepath.Join(folder, hex.EncodeToString(name[:16])+".json"), of: &origin{path, of.stamp}, began: now(),
	}
}

// read takes the digest from the record, and reports whether it is valid.
func (r *record) read(to *digest) bool {
	data, err := os.ReadFile(r.path)
	if err != nil {
		return false
	}
	var x recorded
	if json.Unmarshal(data, &x) != nil || x.Format != recordFormat || x.Path != r.of.path || x.Stamp != r.of.stamp {
		return false
	}
	sum, err := hex.DecodeString(x.Sum)
	return err == nil && len(sum) == len(to) && copy(to[:], sum) == len(sum)
}

// write keeps a digest, unless the file was changed a moment before it was hashed.
func (r *record) write(d digest) error {
	if r.began.Sub(time.Unix(0, r.of.Changed)) < settled {
		return nil
	}
	data, err := json.Marshal(recorded{Path: r.of.path, Stamp: r.of.stamp, Sum: hex.EncodeToString(d[:]), Format: recordFormat})
	if err != nil {
		return err
	}
	folder := filepath.Dir(r.path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	// Records of deleted files are useless. To tell them apart is not worth it.
	if list, err := os.ReadDir(folder); err == nil && len(list) >= maxRecords {
		for _, e := range list {
			_ = os.Remove(filepath.Join(folder, e.Name()))
		}
	}
	f, err := os.CreateTemp(folder, "*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), r.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
