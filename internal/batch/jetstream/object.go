package jetstream

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/foretoken/foretoken/internal/batch"
)

// A large value is an object: messages under their own names, one that names the key and
// one for each part. Each is acknowledged before the next is sent, so that losing the leader
// cannot change their order. The client's own object store sends all parts at once, and resends
// unacknowledged parts after the others and with the bytes of the last one.

const ownerPart = "key" // the name of the message with the key

func objectKey(name string) string      { return "objects/" + name }
func partKey(name string, i int) string { return objectKey(name) + "/" + strconv.Itoa(i) }

// upload stores a large value: an object under a unique name, and then a reference to
// it. If the reference exists already, the object is removed.
func (s *Store) upload(ctx context.Context, key string, r io.Reader) error {
	if _, _, err := s.read(ctx, key); err == nil {
		return batch.ErrConflict
	}
	ctx, cancel := context.WithTimeout(ctx, maxTransfer)
	defer cancel()
	ref, err := s.writeObject(ctx, key, r)
	var data []byte
	if err == nil {
		data, err = json.Marshal(ref)
	}
	if err == nil {
		_, err = s.write(ctx, key, append([]byte{kindObject}, data...), 0)
	}
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), apiTimeout)
		defer cancel()
		if lost := s.purge(clean, path(objectKey(ref.Object))+".>"); lost != nil {
			s.c.log.Warn("store: removing an unused object failed; it expires after an hour", "object", ref.Object, "error", lost)
		}
	}
	return err
}

// writeObject writes the messages of an object.
func (s *Store) writeObject(ctx context.Context, key string, r io.Reader) (reference, error) {
	ref, sum := reference{Object: rand.Text()}, sha256.New()
	if _, err := s.write(ctx, objectKey(ref.Object)+"/"+ownerPart, append([]byte{kindValue}, key...), 0); err != nil {
		return ref, err
	}
	for i := 0; ; i++ {
		part := make([]byte, 1+maxInline)
		part[0] = kindValue
		n, err := io.ReadFull(r, part[1:])
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return ref, err
		}
		if n > 0 {
			_, _ = sum.Write(part[1 : 1+n]) // a hash does not fail
			if _, err := s.write(ctx, partKey(ref.Object, i), part[:1+n], 0); err != nil {
				return ref, err
			}
			ref.Size += int64(n)
		}
		if last {
			ref.Sum = hex.EncodeToString(sum.Sum(nil))
			return ref, nil
		}
	}
}

// download reads an object.
func (s *Store) download(ctx context.Context, ref reference, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, maxTransfer)
	defer cancel()
	sum := sha256.New()
	var size int64
	for i := 0; size < ref.Size; i++ {
		part, _, err := s.read(ctx, partKey(ref.Object, i))
		if err != nil {
			return err
		}
		if len(part) == 1 {
			break // a part has something
		}
		size += int64(len(part) - 1)
		if _, err := io.MultiWriter(w, sum).Write(part[1:]); err != nil {
			return err
		}
	}
	if size != ref.Size || hex.EncodeToString(sum.Sum(nil)) != ref.Sum {
		return fmt.Errorf("object %s: it is damaged", ref.Object)
	}
	return nil
}

var _ batch.Sweeper = (*Store)(nil)

// Sweep deletes objects that no key refers to: a process was killed before it had sent all of one, or
// after it had deleted the reference.
func (s *Store) Sweep(ctx context.Context, before time.Time) error {
	var names []string
	for key, err := range s.list(ctx, path("objects")+".*."+ownerPart) {
		if err != nil {
			return err
		}
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(key, objectKey("")), "/"+ownerPart))
	}
	for _, name := range names {
		m, err := s.message(ctx, objectKey(name)+"/"+ownerPart)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			return err
		}
		if !m.Time.Before(before) {
			continue
		}
		named, err := s.refers(ctx, string(m.Data[1:]), name)
		if err == nil && !named {
			err = s.purge(ctx, path(objectKey(name))+".>")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refers reports whether a key refers to an object.
func (s *Store) refers(ctx context.Context, key, name string) (bool, error) {
	data, _, err := s.read(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var ref reference
	return data[0] == kindObject && json.Unmarshal(data[1:], &ref) == nil && ref.Object == name, nil
}

// message is the last message of a key.
func (s *Store) message(ctx context.Context, key string) (m *js.RawStreamMsg, err error) {
	err = retried(ctx, func(ctx context.Context) (err error) {
		m, err = s.stream.GetLastMsgForSubject(ctx, stateSubject+"."+path(key))
		return err
	})
	if errors.Is(err, js.ErrMsgNotFound) {
		return nil, fmt.Errorf("%s: %w", key, fs.ErrNotExist)
	}
	if err != nil {
		return nil, explained(err)
	}
	if len(m.Data) == 0 {
		return nil, fmt.Errorf("%s: it is empty: another program wrote to the stream %s", key, stateStream)
	}
	return m, nil
}
