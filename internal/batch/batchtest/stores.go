// Package batchtest has the contracts of stores and queues of batches, as checks that their
// tests run. It knows no implementation.
package batchtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/foretoken/foretoken/internal/batch"
)

// patience is the time limit of a check. Only a fault takes that long, however busy the machine is.
const patience = 5 * time.Minute

// StoreCheck is one property of stores.
type StoreCheck struct {
	Name  string
	Check func(context.Context, batch.Store) error
}

// StoreChecks are the properties of stores. Each needs an empty store.
var StoreChecks = []StoreCheck{
	{"CreatesOnce", createsOnce},
	{"KeepsLargeValues", keepsLargeValues},
	{"SaysWhatIsMissing", saysWhatIsMissing},
	{"KeepsAllOrNothing", keepsAllOrNothing},
	{"OneCreatorWins", oneCreatorWins},
	{"RecordsHaveRevisions", recordsHaveRevisions},
	{"NoChangeIsLost", noChangeIsLost},
	{"DeletedIsGone", deletedIsGone},
	{"ListsInOrder", listsInOrder},
	{"IsAMap", isAMap},
}

// Stores runs the checks, each with a new store.
func Stores(t *testing.T, open func(*testing.T) batch.Store) {
	for _, c := range StoreChecks {
		t.Run(c.Name, func(t *testing.T) {
			s := open(t)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := c.Check(ctx, s); err != nil {
				t.Error(err)
			}
		})
	}
}

// want compares the value of a key with data.
func want(ctx context.Context, s batch.Store, key, data string) error {
	r, err := s.Open(ctx, key)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	got, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if string(got) != data {
		return fmt.Errorf("%s has %d bytes %.40q, want %d bytes %.40q", key, len(got), got, len(data), data)
	}
	return nil
}

// wantError compares an error.
func wantError(what string, err, wanted error) error {
	if !errors.Is(err, wanted) {
		return fmt.Errorf("%s: error %v, want %v", what, err, wanted)
	}
	return nil
}

func create(ctx context.Context, s batch.Store, key, data string) error {
	return s.Create(ctx, key, strings.NewReader(data))
}

// text is random, and the same for a seed.
func text(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

func createsOnce(ctx context.Context, s batch.Store) error {
	for i, data := range []string{"first", "", "\x00\xff\n"} {
		key := fmt.Sprintf("results/batch_%d/x", i)
		if err := errors.Join(create(ctx, s, key, data), want(ctx, s, key, data)); err != nil {
			return err
		}
		if err := wantError("created twice", create(ctx, s, key, data+"second"), batch.ErrExists); err != nil {
			return err
		}
		if err := want(ctx, s, key, data); err != nil {
			return err
		}
	}
	return nil
}

func keepsLargeValues(ctx context.Context, s batch.Store) error {
	r := rand.New(rand.NewPCG(3, 1))
	for _, n := range []int{1, 255 << 10, 256 << 10, 256<<10 + 1, 3 << 20} {
		key, data := fmt.Sprintf("content/file-%d", n), text(uint64(n), n)
		if err := errors.Join(create(ctx, s, key, data), want(ctx, s, key, data)); err != nil {
			return err
		}
		for range 20 {
			offset := r.Int64N(int64(n) + 1)
			length := r.Int64N(int64(n) - offset + 1)
			got, err := s.Range(ctx, key, offset, length)
			if err != nil || string(got) != data[offset:offset+length] {
				return fmt.Errorf("%s: %d bytes from %d: %d others, %v", key, length, offset, len(got), err)
			}
		}
		for _, x := range [][2]int64{{-1, 1}, {0, -1}, {0, int64(n) + 1}, {int64(n), 1}, {int64(n) + 5, 1}, {1 << 62, 1 << 62}} {
			if got, err := s.Range(ctx, key, x[0], x[1]); err == nil {
				return fmt.Errorf("%s: %d bytes from %d: got %d, want an error", key, x[1], x[0], len(got))
			}
		}
		if err := wantError("created twice", create(ctx, s, key, data+"!"), batch.ErrExists); err != nil {
			return err
		}
		if err := errors.Join(want(ctx, s, key, data), s.Delete(ctx, key)); err != nil {
			return err
		}
		_, err := s.Range(ctx, key, 0, 1)
		if err := wantError("range of what was deleted", err, fs.ErrNotExist); err != nil {
			return err
		}
	}
	return nil
}

func saysWhatIsMissing(ctx context.Context, s batch.Store) error {
	_, open := s.Open(ctx, "files/none")
	_, part := s.Range(ctx, "files/none", 0, 1)
	_, _, get := s.Get(ctx, "files/none")
	return errors.Join(wantError("open", open, fs.ErrNotExist), wantError("range", part, fs.ErrNotExist), wantError("get", get, fs.ErrNotExist),
		s.Delete(ctx, "files/none"))
}

func keepsAllOrNothing(ctx context.Context, s batch.Store) error {
	broken := errors.New("broken")
	for _, n := range []int{0, 100, 1 << 20} {
		key := fmt.Sprintf("content/half-%d", n)
		r := io.MultiReader(strings.NewReader(text(1, n)), iotest.ErrReader(broken))
		if err := wantError("a reader that fails", s.Create(ctx, key, r), broken); err != nil {
			return err
		}
		_, err := s.Open(ctx, key)
		if err := wantError("half of a file", err, fs.ErrNotExist); err != nil {
			return err
		}
		if err := errors.Join(create(ctx, s, key, "whole"), want(ctx, s, key, "whole")); err != nil {
			return err
		}
	}
	return nil
}

func oneCreatorWins(ctx context.Context, s batch.Store) error {
	for round, n := range []int{10, 300 << 10} {
		key := fmt.Sprintf("results/race/%d", round)
		errs := make([]error, 6)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { errs[i] = create(ctx, s, key, text(uint64(i), n)) })
		}
		all.Wait()
		winner := -1
		for i, err := range errs {
			if err == nil && winner < 0 {
				winner = i
			} else if err := wantError("the second of creators", err, batch.ErrExists); err != nil {
				return err
			}
		}
		if winner < 0 {
			return errors.New("no creator won")
		}
		if err := want(ctx, s, key, text(uint64(winner), n)); err != nil {
			return err
		}
	}
	return nil
}

func recordsHaveRevisions(ctx context.Context, s batch.Store) error {
	const key = "batches/b"
	var rev uint64
	for i := range 4 {
		next, err := s.Put(ctx, key, []byte{byte(i)}, rev)
		if err != nil || next <= rev {
			return fmt.Errorf("revision %d after %d, %w", next, rev, err)
		}
		for _, other := range []uint64{0, rev, next + 1} {
			_, err = s.Put(ctx, key, []byte("stale"), other)
			if err := wantError("another revision", err, batch.ErrConflict); err != nil {
				return err
			}
		}
		data, now, err := s.Get(ctx, key)
		if err != nil || now != next || !bytes.Equal(data, []byte{byte(i)}) {
			return fmt.Errorf("record %q of revision %d, want %d of %d: %w", data, now, i, next, err)
		}
		rev = next
	}
	return nil
}

func noChangeIsLost(ctx context.Context, s batch.Store) error {
	const workers, each = 4, 8
	errs := make([]error, workers)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			for done := 0; done < each; {
				data, rev, err := s.Get(ctx, "batches/count")
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					errs[i] = err
					return
				}
				_, err = s.Put(ctx, "batches/count", append(bytes.Clone(data), '1'), rev)
				if err == nil {
					done++
				} else if !errors.Is(err, batch.ErrConflict) {
					errs[i] = err
					return
				}
			}
		})
	}
	all.Wait()
	data, _, err := s.Get(ctx, "batches/count")
	if len(data) != workers*each {
		err = errors.Join(err, fmt.Errorf("%d changes of %d", len(data), workers*each))
	}
	return errors.Join(append(errs, err)...)
}

func deletedIsGone(ctx context.Context, s batch.Store) error {
	for _, n := range []int{3, 300 << 10} {
		key := fmt.Sprintf("content/gone-%d", n)
		for i := range uint64(3) {
			if err := errors.Join(create(ctx, s, key, text(i, n)), want(ctx, s, key, text(i, n)), s.Delete(ctx, key)); err != nil {
				return err
			}
			_, err := s.Open(ctx, key)
			if err := wantError("open what was deleted", err, fs.ErrNotExist); err != nil {
				return err
			}
		}
	}
	rev, err := s.Put(ctx, "batches/gone", []byte("x"), 0)
	if err = errors.Join(err, s.Delete(ctx, "batches/gone")); err != nil {
		return err
	}
	_, err = s.Put(ctx, "batches/gone", []byte("y"), rev)
	if err := wantError("a revision of what was deleted", err, batch.ErrConflict); err != nil {
		return err
	}
	_, err = s.Put(ctx, "batches/gone", []byte("z"), 0)
	return err
}

func list(ctx context.Context, s batch.Store, prefix string) (keys []string, err error) {
	for key, err := range s.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func listsInOrder(ctx context.Context, s batch.Store) error {
	keys := []string{"files/b", "files/a", "files/ab", "files/A-1", "files/_", "results/x/1", "results/x/10", "results/x/2", "results/xy/1", "results/y/1"}
	for _, key := range keys {
		if err := create(ctx, s, key, key); err != nil {
			return err
		}
	}
	slices.Sort(keys)
	for _, prefix := range []string{"files/", "files/a", "files/A", "files/c", "results/", "results/x", "results/x/", "results/x/1", "results/none/"} {
		var wanted []string
		for _, key := range keys {
			if strings.HasPrefix(key, prefix) {
				wanted = append(wanted, key)
			}
		}
		got, err := list(ctx, s, prefix)
		if err != nil || !slices.Equal(got, wanted) {
			return fmt.Errorf("list of %s: %v, want %v: %w", prefix, got, wanted, err)
		}
	}
	n := 0
	for _, err := range s.List(ctx, "results/") { // a reader may have enough
		if err != nil {
			return err
		}
		if n++; n == 2 {
			break
		}
	}
	return nil
}

// isAMap compares random operations with those of a map.
func isAMap(ctx context.Context, s batch.Store) error {
	r := rand.New(rand.NewPCG(7, 1))
	values := map[string]string{}
	for range 80 {
		key := fmt.Sprintf("results/m/%d", r.IntN(6))
		old, there := values[key]
		switch r.IntN(4) {
		case 0, 1:
			data := text(r.Uint64(), r.IntN(50))
			err := create(ctx, s, key, data)
			if there {
				err = wantError("create", err, batch.ErrExists)
			} else {
				values[key] = data
			}
			if err != nil {
				return err
			}
		case 2:
			if err := s.Delete(ctx, key); err != nil {
				return err
			}
			delete(values, key)
		default:
			if there {
				if err := want(ctx, s, key, old); err != nil {
					return err
				}
			}
		}
		got, err := list(ctx, s, "results/m/")
		if wanted := slices.Sorted(maps.Keys(values)); err != nil || !slices.Equal(got, wanted) {
			return fmt.Errorf("list: %v, want %v: %w", got, wanted, err)
		}
	}
	return nil
}
