package batchtest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/batch/batchtest"
)

func folder(t *testing.T) batch.Store {
	t.Helper()
	f, err := batch.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestFolderIsAStore(t *testing.T) { batchtest.Stores(t, folder) }

func TestMemoryIsAQueue(t *testing.T) {
	batchtest.Queues(t, func(*testing.T) batch.Queue { return batch.NewMemory() })
}

// faultyStore does one thing wrong.
type faultyStore struct {
	batch.Store
	create func(ctx context.Context, key string, r io.Reader) error
	part   func(ctx context.Context, key string, offset, length int64) ([]byte, error)
	put    func(ctx context.Context, key string, data []byte, rev uint64) (uint64, error)
	delete func(ctx context.Context, key string) error
	list   func(ctx context.Context, prefix string) iter.Seq2[string, error]
}

func (s *faultyStore) Create(ctx context.Context, key string, r io.Reader) error {
	if s.create != nil {
		return s.create(ctx, key, r)
	}
	return s.Store.Create(ctx, key, r)
}

func (s *faultyStore) Range(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if s.part != nil {
		return s.part(ctx, key, offset, length)
	}
	return s.Store.Range(ctx, key, offset, length)
}

func (s *faultyStore) Put(ctx context.Context, key string, data []byte, rev uint64) (uint64, error) {
	if s.put != nil {
		return s.put(ctx, key, data, rev)
	}
	return s.Store.Put(ctx, key, data, rev)
}

func (s *faultyStore) Delete(ctx context.Context, key string) error {
	if s.delete != nil {
		return s.delete(ctx, key)
	}
	return s.Store.Delete(ctx, key)
}

func (s *faultyStore) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	if s.list != nil {
		return s.list(ctx, prefix)
	}
	return s.Store.List(ctx, prefix)
}

// storeFaults are wrong in one thing each.
var storeFaults = map[string]func(s *faultyStore){
	"the last creator wins": func(s *faultyStore) {
		s.create = func(ctx context.Context, key string, r io.Reader) error {
			if err := s.Store.Delete(ctx, key); err != nil {
				return err
			}
			return s.Store.Create(ctx, key, r)
		}
	},
	"half of a file stays": func(s *faultyStore) {
		s.create = func(ctx context.Context, key string, r io.Reader) error {
			data, failed := io.ReadAll(r)
			return errors.Join(s.Store.Create(ctx, key, bytes.NewReader(data)), failed)
		}
	},
	"large values lose their end": func(s *faultyStore) {
		s.create = func(ctx context.Context, key string, r io.Reader) error {
			return s.Store.Create(ctx, key, io.LimitReader(r, 1<<20))
		}
	},
	"a part begins elsewhere": func(s *faultyStore) {
		s.part = func(ctx context.Context, key string, offset, length int64) ([]byte, error) {
			return s.Store.Range(ctx, key, max(0, offset-1), length)
		}
	},
	"a part is short": func(s *faultyStore) {
		s.part = func(ctx context.Context, key string, offset, length int64) ([]byte, error) {
			data, err := s.Store.Range(ctx, key, offset, length)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = nil
			}
			return data, err
		}
	},
	"a record has no revisions": func(s *faultyStore) {
		s.put = func(ctx context.Context, key string, data []byte, _ uint64) (uint64, error) {
			_, rev, err := s.Get(ctx, key)
			if err != nil {
				rev = 0
			}
			return s.Store.Put(ctx, key, data, rev)
		}
	},
	"delete does nothing": func(s *faultyStore) { s.delete = func(context.Context, string) error { return nil } },
	"a list has no order": func(s *faultyStore) {
		s.list = func(ctx context.Context, prefix string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				var keys []string
				for key, err := range s.Store.List(ctx, prefix) {
					if err != nil {
						yield("", err)
						return
					}
					keys = append(keys, key)
				}
				for _, key := range slices.Backward(keys) {
					if !yield(key, nil) {
						return
					}
				}
			}
		}
	},
	"a list has others": func(s *faultyStore) {
		s.list = func(ctx context.Context, prefix string) iter.Seq2[string, error] {
			return s.Store.List(ctx, prefix[:bytes.LastIndexByte([]byte(prefix), '/')+1])
		}
	},
}

func TestPlantedFaultsOfStoresAreFound(t *testing.T) {
	for name, plant := range storeFaults {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			for _, c := range batchtest.StoreChecks {
				s := &faultyStore{Store: folder(t)}
				plant(s)
				if c.Check(ctx, s) != nil {
					return
				}
			}
			t.Error("no check finds it")
		})
	}
}

// faultyQueue does one thing wrong.
type faultyQueue struct {
	batch.Queue
	publish     func(ctx context.Context, hints []batch.Hint) error
	fetch       func(ctx context.Context, model string, n int) ([]batch.Delivery, error)
	outstanding func(ctx context.Context, model, name string) (int, error)
	drop        func(ctx context.Context, model, name string) error
}

func (q *faultyQueue) Publish(ctx context.Context, hints []batch.Hint) error {
	if q.publish != nil {
		return q.publish(ctx, hints)
	}
	return q.Queue.Publish(ctx, hints)
}

func (q *faultyQueue) Fetch(ctx context.Context, model string, n int) ([]batch.Delivery, error) {
	if q.fetch != nil {
		return q.fetch(ctx, model, n)
	}
	return q.Queue.Fetch(ctx, model, n)
}

func (q *faultyQueue) Outstanding(ctx context.Context, model, name string) (int, error) {
	if q.outstanding != nil {
		return q.outstanding(ctx, model, name)
	}
	return q.Queue.Outstanding(ctx, model, name)
}

func (q *faultyQueue) Drop(ctx context.Context, model, name string) error {
	if q.drop != nil {
		return q.drop(ctx, model, name)
	}
	return q.Queue.Drop(ctx, model, name)
}

// faultyDelivery forgets attempts.
type faultyDelivery struct{ batch.Delivery }

func (faultyDelivery) Attempts() int { return 1 }

// countingDelivery counts returned hints as attempts.
type countingDelivery struct{ batch.Delivery }

func (d countingDelivery) Return() error { return d.Later(0) }

var queueFaults = map[string]func(q *faultyQueue){
	"what is given back was tried": func(q *faultyQueue) {
		q.fetch = func(ctx context.Context, model string, n int) ([]batch.Delivery, error) {
			got, err := q.Queue.Fetch(ctx, model, n)
			for i := range got {
				got[i] = countingDelivery{got[i]}
			}
			return got, err
		}
	},
	"a hint is delivered twice": func(q *faultyQueue) {
		q.fetch = func(ctx context.Context, model string, n int) ([]batch.Delivery, error) {
			got, err := q.Queue.Fetch(ctx, model, n)
			if len(got) > 0 && got[0].Attempts() == 1 && got[0].Hint().Line == 1 {
				err = errors.Join(err, got[0].Later(0))
			}
			return got, err
		}
	},
	"hints come in another order": func(q *faultyQueue) {
		q.publish = func(ctx context.Context, hints []batch.Hint) error {
			hints = slices.Clone(hints)
			slices.Reverse(hints)
			return q.Queue.Publish(ctx, hints)
		}
	},
	"models are mixed": func(q *faultyQueue) {
		q.publish = func(ctx context.Context, hints []batch.Hint) error {
			for i := range hints {
				h := hints[i]
				h.Model = "all"
				if err := q.Queue.Publish(ctx, []batch.Hint{h}); err != nil {
					return err
				}
			}
			return nil
		}
		q.fetch = func(ctx context.Context, _ string, n int) ([]batch.Delivery, error) {
			return q.Queue.Fetch(ctx, "all", n)
		}
	},
	"too many at a time": func(q *faultyQueue) {
		q.fetch = func(ctx context.Context, model string, n int) ([]batch.Delivery, error) {
			return q.Queue.Fetch(ctx, model, n+1)
		}
	},
	"fetching does not wait": func(q *faultyQueue) {
		q.fetch = func(ctx context.Context, model string, n int) ([]batch.Delivery, error) {
			ctx, cancel := context.WithDeadline(ctx, time.Time{}) // it has passed
			defer cancel()
			return q.Queue.Fetch(ctx, model, n)
		}
	},
	"what is in work is not counted": func(q *faultyQueue) {
		taken := 0
		q.fetch = func(ctx context.Context, model string, n int) ([]batch.Delivery, error) {
			got, err := q.Queue.Fetch(ctx, model, n)
			taken += len(got)
			return got, err
		}
		q.outstanding = func(ctx context.Context, model, name string) (int, error) {
			n, err := q.Queue.Outstanding(ctx, model, name)
			return max(0, n-taken), err
		}
	},
	"nothing is dropped": func(q *faultyQueue) { q.drop = func(context.Context, string, string) error { return nil } },
	"attempts are forgotten": func(q *faultyQueue) {
		q.fetch = func(ctx context.Context, model string, n int) ([]batch.Delivery, error) {
			got, err := q.Queue.Fetch(ctx, model, n)
			for i := range got {
				got[i] = faultyDelivery{got[i]}
			}
			return got, err
		}
	},
}

func TestPlantedFaultsOfQueuesAreFound(t *testing.T) {
	for name, plant := range queueFaults {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			for _, c := range batchtest.QueueChecks {
				q := &faultyQueue{Queue: batch.NewMemory()}
				plant(q)
				if c.Check(ctx, q) != nil {
					return
				}
			}
			t.Error("no check finds it")
		})
	}
}
