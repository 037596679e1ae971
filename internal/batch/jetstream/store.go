package jetstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/foretoken/foretoken/internal/batch"
)

// Names in the servers. The last message of stateSubject.<path of a key> is the value of the key.
const (
	stateStream  = "FT_STATE"
	stateSubject = "ft.state"
)

// The first byte of a message is the kind of the rest.
const (
	kindValue  = 'v' // a created value
	kindObject = 'o' // a reference to it, as an object of several messages
	kindRecord = 'r'
)

// A value up to this size is a message, a larger one an object of such messages.
const maxInline = 256 << 10

// Store implements batch.Store, for all processes that are connected to the same servers.
type Store struct {
	c      *Conn
	stream js.Stream // a handle: saves a request for the stream each time
	cache  *cache
}

var _ batch.Store = (*Store)(nil)

// reference is the location of a large value.
type reference struct {
	Object string `json:"object"`
	Size   int64  `json:"size"`
	Sum    string `json:"sum"` // SHA-256
}

// Store opens the store of the servers, and creates it if necessary. Files that were read are
// cached in a folder of this machine, up to a size.
func (c *Conn) Store(ctx context.Context, dir string, size int64) (*Store, error) {
	s := &Store{c: c}
	// Replicas that lag behind may not answer: every reader sees what was written.
	err := retried(ctx, func(ctx context.Context) (err error) {
		s.stream, err = c.js.CreateOrUpdateStream(ctx, js.StreamConfig{
			Name: stateStream, Subjects: []string{stateSubject + ".>"}, MaxMsgsPerSubject: 1, Discard: js.DiscardNew,
			Storage: js.FileStorage, Replicas: c.replicas, Duplicates: time.Second,
		})
		return err
	})
	if err == nil {
		s.cache, err = newCache(dir, size)
	}
	if err != nil {
		return nil, fmt.Errorf("store at %s: %w", c.address, explained(err))
	}
	return s, nil
}

// patience is how long an operation is retried while servers elect a leader, and
// maxTransfer how long a file may take.
const (
	patience    = 30 * time.Second
	maxTransfer = 5 * time.Minute
)

// retried calls f until it succeeds, fails permanently or has failed for too long. Each call has a limit: a server that dies
// does not answer.
func retried(ctx context.Context, f func(context.Context) error) error {
	began := time.Now()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		limited, cancel := context.WithTimeout(ctx, apiTimeout)
		err := f(limited)
		cancel()
		if !transient(err) || time.Since(began) > patience {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// transient reports errors that end when the cluster has recovered.
func transient(err error) bool {
	var api *js.APIError
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, js.ErrNoStreamResponse) ||
		errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &api) && api.Code == 503 && !full(api)
}

// write makes a message the last one of a key, if the last revision is rev; 0: if there is none.
func (s *Store) write(ctx context.Context, key string, data []byte, rev uint64) (next uint64, err error) {
	tries := 0
	err = retried(ctx, func(ctx context.Context) error {
		tries++
		ack, err := s.c.js.Publish(ctx, stateSubject+"."+path(key), data, js.WithExpectLastSequencePerSubject(rev), js.WithExpectStream(stateStream))
		if err == nil {
			next = ack.Sequence
		}
		return err
	})
	if !stale(err) {
		return next, explained(err)
	}
	if tries > 1 { // an earlier try may have got through without an answer
		if now, seq, err := s.read(ctx, key); err == nil && seq > rev && bytes.Equal(now, data) {
			return seq, nil
		}
	}
	return 0, batch.ErrConflict
}

// stale reports that the last message of a subject was another one.
func stale(err error) bool {
	var api *js.APIError
	return errors.As(err, &api) && (api.ErrorCode == js.JSErrCodeStreamWrongLastSequence || api.ErrorCode == js.JSErrCodeStreamWrongLastSequenceConstant)
}

// read is the last message of a key.
func (s *Store) read(ctx context.Context, key string) (data []byte, rev uint64, err error) {
	m, err := s.message(ctx, key)
	if err != nil {
		return nil, 0, err
	}
	return m.Data, m.Sequence, nil
}

// Create keeps a value.
func (s *Store) Create(ctx context.Context, key string, r io.Reader) error {
	head := make([]byte, 1, maxInline+2)
	head[0] = kindValue
	n, err := io.ReadFull(r, head[1:maxInline+2])
	head = head[:1+n]
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		_, err = s.write(ctx, key, head, 0)
	} else if err == nil {
		err = s.upload(ctx, key, io.MultiReader(bytes.NewReader(head[1:]), r))
	}
	if errors.Is(err, batch.ErrConflict) {
		return fmt.Errorf("%s: %w", key, batch.ErrExists)
	}
	return err
}

// value is the created value of a key: its bytes, or a file of the cache with them, which the
// caller closes.
func (s *Store) value(ctx context.Context, key string) (data []byte, file *os.File, err error) {
	data, _, err = s.read(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	switch data[0] {
	case kindValue:
		return data[1:], nil, nil
	case kindObject:
		var ref reference
		if err := json.Unmarshal(data[1:], &ref); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", key, err)
		}
		file, err := s.cache.open(ref, func(w io.Writer) error { return s.download(ctx, ref, w) })
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", key, explained(err))
		}
		return nil, file, nil
	}
	return nil, nil, fmt.Errorf("%s: it is a record, not a value: %w", key, fs.ErrNotExist)
}

// Open reads a value.
func (s *Store) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	data, file, err := s.value(ctx, key)
	if err != nil {
		return nil, err
	}
	if file != nil {
		return file, nil
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// Range reads a part of a value.
func (s *Store) Range(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if offset < 0 || length < 0 {
		return nil, fmt.Errorf("%s: %d bytes from offset %d: want 0 or above", key, length, offset)
	}
	data, f, err := s.value(ctx, key)
	if err != nil {
		return nil, err
	}
	if f == nil {
		if offset > int64(len(data)) || length > int64(len(data))-offset {
			return nil, fmt.Errorf("%s: %d bytes from %d, but it has %d: %w", key, length, offset, len(data), io.ErrUnexpectedEOF)
		}
		return data[offset : offset+length], nil
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if offset > info.Size() || length > info.Size()-offset {
		return nil, fmt.Errorf("%s: %d bytes from %d, but it has %d: %w", key, length, offset, info.Size(), io.ErrUnexpectedEOF)
	}
	part := make([]byte, length)
	if _, err := f.ReadAt(part, offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return part, nil
}

// Put changes a record.
func (s *Store) Put(ctx context.Context, key string, data []byte, rev uint64) (uint64, error) {
	if limit := s.c.nc.MaxPayload() - 1024; int64(len(data)) > limit {
		return 0, fmt.Errorf("%s: a record of %d bytes, but the servers accept %d: raise their max_payload", key, len(data), limit)
	}
	next, err := s.write(ctx, key, append([]byte{kindRecord}, data...), rev)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	return next, nil
}

// Get reads a record.
func (s *Store) Get(ctx context.Context, key string) (data []byte, rev uint64, err error) {
	data, rev, err = s.read(ctx, key)
	if err != nil {
		return nil, 0, err
	}
	if data[0] != kindRecord {
		return nil, 0, fmt.Errorf("%s: it is a value, not a record: %w", key, fs.ErrNotExist)
	}
	return data[1:], rev, nil
}

// Delete removes a key, and then the object that it referred to.
func (s *Store) Delete(ctx context.Context, key string) error {
	data, _, err := s.read(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.purge(ctx, path(key)); err != nil || data[0] != kindObject {
		return err
	}
	var ref reference
	if err := json.Unmarshal(data[1:], &ref); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	s.cache.remove(ref)
	return s.purge(ctx, path(objectKey(ref.Object))+".>")
}

// purge removes the messages of a subject, or of several.
func (s *Store) purge(ctx context.Context, subject string) error {
	return explained(retried(ctx, func(ctx context.Context) error {
		return s.stream.Purge(ctx, js.WithPurgeSubject(stateSubject+"."+subject))
	}))
}

// List lists keys. The servers filter by the part of the prefix up to its last slash.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	filter := ">"
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		filter = path(prefix[:i]) + ".>"
	}
	return func(yield func(string, error) bool) {
		for key, err := range s.list(ctx, filter) {
			if err == nil && (!strings.HasPrefix(key, prefix) || strings.HasPrefix(key, objectKey(""))) {
				continue
			}
			if !yield(key, err) {
				return
			}
		}
	}
}

// list lists the keys whose subjects are in a filter, in order.
func (s *Store) list(ctx context.Context, filter string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var subjects map[string]uint64
		err := retried(ctx, func(ctx context.Context) error {
			info, err := s.stream.Info(ctx, js.WithSubjectFilter(stateSubject+"."+filter))
			if err == nil {
				subjects = info.State.Subjects
			}
			return err
		})
		if err != nil {
			yield("", explained(err))
			return
		}
		var keys []string
		for subject := range maps.Keys(subjects) {
			if key, ok := unpath(strings.TrimPrefix(subject, stateSubject+".")); ok {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		for _, key := range keys {
			if !yield(key, nil) {
				return
			}
		}
	}
}
