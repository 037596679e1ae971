package jetstream

import (
	"context"
	"errors"
	"strings"

	js "github.com/nats-io/nats.go/jetstream"
)

// DeleteWork deletes the stream of hints, as somebody with other tools could.
func DeleteWork(ctx context.Context, c *Conn) error { return c.js.DeleteStream(ctx, workStream) }

// PublishRaw adds a message that need not be a hint.
func PublishRaw(c *Conn, model, name, text string) error {
	return c.nc.Publish(subject(model, name), []byte(text))
}

// Objects counts the objects of a store.
func Objects(ctx context.Context, s *Store) (int, error) {
	list, err := s.objects.List(ctx)
	if errors.Is(err, js.ErrNoObjectsFound) {
		return 0, nil
	}
	return len(list), err
}

// Chunks counts the objects that there are chunks of.
func Chunks(ctx context.Context, s *Store) (int, error) {
	stream, err := s.c.js.Stream(ctx, fileStream)
	if err != nil {
		return 0, err
	}
	info, err := stream.Info(ctx, js.WithSubjectFilter(chunkSubject+">"))
	if err != nil {
		return 0, err
	}
	return len(info.State.Subjects), nil
}

// PutObject sends an object and no reference to it, or a chunk and no object.
func PutObject(ctx context.Context, s *Store, name, key string, whole bool) error {
	if !whole {
		_, err := s.c.js.Publish(ctx, chunkSubject+name, []byte("a part"))
		return err
	}
	_, err := s.objects.Put(ctx, js.ObjectMeta{Name: name, Description: key}, strings.NewReader("contents"))
	return err
}

// WriteReference makes a key refer to something.
func WriteReference(ctx context.Context, s *Store, key, ref string) error {
	_, err := s.c.js.Publish(ctx, stateSubject+"."+path(key), append([]byte{kindObject}, ref...))
	return err
}

// Token and Untoken are for fuzzing.
var (
	Token   = token
	Untoken = untoken
	Path    = path
	Unpath  = unpath
)

// EraseState removes everything from the store of a cluster.
func EraseState(ctx context.Context, c *Conn) error {
	s, err := c.js.Stream(ctx, stateStream)
	if err != nil {
		return err
	}
	return s.Purge(ctx)
}
