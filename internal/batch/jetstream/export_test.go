package jetstream

import (
	"context"
	"errors"
	"io"
	"strings"
)

// DeleteWork deletes the stream of hints, as another NATS client could.
func DeleteWork(ctx context.Context, c *Conn) error { return c.js.DeleteStream(ctx, workStream) }

// PublishRaw adds a message that need not be a hint.
func PublishRaw(c *Conn, model, name, text string) error {
	return c.nc.Publish(subject(model, name), []byte(text))
}

// Objects counts the objects of a store.
func Objects(ctx context.Context, s *Store) (n int, err error) {
	names := map[string]bool{}
	for key, err := range s.list(ctx, path("objects")+".>") {
		if err != nil {
			return 0, err
		}
		names[strings.Split(key, "/")[1]] = true
	}
	return len(names), nil
}

// PutObject sends an object and no reference to it.
func PutObject(ctx context.Context, s *Store, key string) error {
	_, err := s.writeObject(ctx, key, strings.NewReader("contents"))
	return err
}

// WriteReference makes a key refer to something.
func WriteReference(ctx context.Context, s *Store, key, ref string) error {
	_, err := s.c.js.Publish(ctx, stateSubject+"."+path(key), append([]byte{kindObject}, ref...))
	return err
}

// OpenCached reads a file of a cache in a folder, downloaded if it is not there.
func OpenCached(dir, object string, size int64, download func(io.Writer) error) ([]byte, error) {
	c, err := newCache(dir, 0)
	if err != nil {
		return nil, err
	}
	f, err := c.open(reference{Object: object, Size: size}, download)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	return data, errors.Join(err, f.Close(), c.root.Close())
}

// Asked counts the requests to the servers that f makes.
func Asked(c *Conn, f func() error) (n int, err error) {
	sub, err := c.nc.SubscribeSync("$JS.API.>")
	if err != nil {
		return 0, err
	}
	if err = errors.Join(f(), c.nc.Flush()); err == nil {
		n, _, err = sub.Pending()
	}
	return n, errors.Join(err, sub.Unsubscribe())
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
