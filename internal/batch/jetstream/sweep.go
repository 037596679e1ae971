package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/foretoken/foretoken/internal/batch"
)

// Where the servers keep the chunks of objects, a subject for each object.
const (
	fileStream   = "OBJ_" + fileBucket
	chunkSubject = "$O." + fileBucket + ".C."
)

var _ batch.Sweeper = (*Store)(nil)

// Sweep deletes objects that no key refers to, and chunks that no object has: a process was killed
// after it had sent them, or before it had sent all of them.
func (s *Store) Sweep(ctx context.Context, before time.Time) error {
	var list []*js.ObjectInfo
	err := retried(ctx, apiTimeout, func(ctx context.Context) (err error) {
		list, err = s.objects.List(ctx)
		if errors.Is(err, js.ErrNoObjectsFound) {
			list, err = nil, nil
		}
		return err
	})
	if err != nil {
		return explained(err)
	}
	known := map[string]bool{} // subjects of chunks
	for _, o := range list {
		known[chunkSubject+o.NUID] = true
		if !o.ModTime.Before(before) {
			continue
		}
		named, err := s.named(ctx, o)
		if err == nil && !named {
			err = limited(ctx, apiTimeout, func(ctx context.Context) error { return s.objects.Delete(ctx, o.Name) })
		}
		if err != nil && !errors.Is(err, js.ErrObjectNotFound) {
			return fmt.Errorf("object %s: %w", o.Name, explained(err))
		}
	}
	return explained(s.sweepChunks(ctx, known, before))
}

// named tells whether the key that an object was sent for refers to it.
func (s *Store) named(ctx context.Context, o *js.ObjectInfo) (bool, error) {
	data, _, err := s.read(ctx, o.Description)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var ref reference
	return data[0] == kindObject && json.Unmarshal(data[1:], &ref) == nil && ref.Object == o.Name, nil
}

// sweepChunks deletes chunks of objects that are not known and were not sent lately.
func (s *Store) sweepChunks(ctx context.Context, known map[string]bool, before time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, maxTransfer)
	defer cancel()
	stream, err := s.c.js.Stream(ctx, fileStream)
	if err != nil {
		return err
	}
	info, err := stream.Info(ctx, js.WithSubjectFilter(chunkSubject+">"))
	if err != nil {
		return err
	}
	for subject := range info.State.Subjects {
		if known[subject] || !strings.HasPrefix(subject, chunkSubject) {
			continue
		}
		last, err := stream.GetLastMsgForSubject(ctx, subject)
		if errors.Is(err, js.ErrMsgNotFound) {
			continue // deleted meanwhile
		}
		if err == nil && last.Time.Before(before) {
			err = stream.Purge(ctx, js.WithPurgeSubject(subject))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
