package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Errors of asking for files and batches.
var (
	ErrTooLarge = errors.New("the file is too large")
	ErrInUse    = errors.New("a batch uses the file")
	ErrOver     = errors.New("the batch has ended")
)

// Page is which part of a list is wanted.
type Page struct {
	After     string // the one that comes before it; "": it is the first
	Limit     int    // 0: all
	Ascending bool   // the oldest first
	Purpose   string // of files; "": any
}

// CreateFile stores the contents of r as a file for the time keep; 0: the default.
func (c *Coordinator) CreateFile(ctx context.Context, owner, filename, purpose string, keep time.Duration, r io.Reader) (File, error) {
	u, err := c.Upload(ctx, r)
	if err != nil {
		return File{}, err
	}
	return u.Keep(ctx, owner, filename, purpose, keep)
}

// Upload is the content of a file whose record does not exist yet. It ends with Keep or Drop.
type Upload struct {
	c    *Coordinator
	id   string
	size int64
}

// Upload stores the content of a file: ErrTooLarge, ErrFull.
func (c *Coordinator) Upload(ctx context.Context, r io.Reader) (*Upload, error) {
	u := &Upload{c: c, id: c.newID("file-")}
	counted := &countedReader{r: r, max: MaxFile}
	err := c.o.Store.Create(ctx, contentKey(u.id), counted)
	u.size = counted.n
	return u, err
}

// Keep makes it a file. keep is how long; 0: as long as by default.
func (u *Upload) Keep(ctx context.Context, owner, filename, purpose string, keep time.Duration) (File, error) {
	if keep == 0 {
		keep = DefaultKeep
	}
	now := u.c.o.Now()
	file := fileRecord{File{
		ID: u.id, Object: "file", Bytes: u.size, CreatedAt: Seconds(now.Unix()), ExpiresAt: Seconds(now.Add(keep).Unix()),
		Filename: filename, Purpose: purpose, Status: "processed",
	}, owner}
	data, err := json.Marshal(file)
	if err == nil {
		_, err = u.c.o.Store.Put(ctx, fileKey(u.id), data, 0)
	}
	if err != nil {
		return File{}, errors.Join(err, u.Drop(ctx))
	}
	return file.File, nil
}

// Drop deletes it.
func (u *Upload) Drop(ctx context.Context) error { return u.c.o.Store.Delete(ctx, contentKey(u.id)) }

// countedReader counts bytes and refuses too many.
type countedReader struct {
	r      io.Reader
	n, max int64
}

// Read implements io.Reader.
func (r *countedReader) Read(to []byte) (int, error) {
	n, err := r.r.Read(to)
	if r.n += int64(n); r.n > r.max {
		return n, ErrTooLarge
	}
	return n, err
}

// read reads a record.
func read[T any](ctx context.Context, s Store, key string) (r T, rev uint64, err error) {
	data, rev, err := s.Get(ctx, key)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, rev, err
}

// File is a file of an owner: fs.ErrNotExist.
func (c *Coordinator) File(ctx context.Context, owner, id string) (File, error) {
	if !validKey.MatchString(fileKey(id)) {
		return File{}, fs.ErrNotExist
	}
	r, _, err := read[fileRecord](ctx, c.o.Store, fileKey(id))
	if err == nil && r.Owner != owner {
		err = fs.ErrNotExist
	}
	return r.File, err
}

// Content reads a file of an owner.
func (c *Coordinator) Content(ctx context.Context, owner, id string) (File, io.ReadCloser, error) {
	f, err := c.File(ctx, owner, id)
	if err != nil {
		return f, nil, err
	}
	content, err := c.o.Store.Open(ctx, contentKey(id))
	return f, content, err
}

// Files lists the files of an owner, and reports whether there are more.
func (c *Coordinator) Files(ctx context.Context, owner string, p Page) ([]File, bool, error) {
	list, err := all[fileRecord](ctx, c.o.Store, "files/")
	if err != nil {
		return nil, false, err
	}
	var files []File
	for _, r := range list {
		if r.Owner == owner && (p.Purpose == "" || r.Purpose == p.Purpose) {
			files = append(files, r.File)
		}
	}
	files, more := page(files, p, func(f File) (string, Seconds) { return f.ID, f.CreatedAt })
	return files, more, nil
}

// all reads all records of a kind.
func all[T any](ctx context.Context, s Store, prefix string) (list []T, err error) {
	for key, err := range s.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		r, _, err := read[T](ctx, s, key)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		list = append(list, r)
	}
	return list, nil
}

// page is a part of a list.
func page[T any](list []T, p Page, of func(T) (string, Seconds)) ([]T, bool) {
	slices.SortStableFunc(list, func(a, b T) int {
		x, at := of(a)
		y, bt := of(b)
		order := int(at - bt)
		if order == 0 {
			order = strings.Compare(x, y)
		}
		if !p.Ascending {
			order = -order
		}
		return order
	})
	if p.After != "" {
		at := slices.IndexFunc(list, func(x T) bool { id, _ := of(x); return id == p.After })
		list = list[at+1:] // one that is gone: from the first
	}
	if p.Limit > 0 && len(list) > p.Limit {
		return list[:p.Limit], true
	}
	return list, false
}

// DeleteFile deletes a file of an owner, unless a batch needs it.
func (c *Coordinator) DeleteFile(ctx context.Context, owner, id string) error {
	if _, err := c.File(ctx, owner, id); err != nil {
		return err
	}
	used, err := c.inputs(ctx)
	if err != nil {
		return err
	}
	if by := used[id]; by != "" {
		return fmt.Errorf("%w: %s; cancel the batch, or wait for its end", ErrInUse, by)
	}
	return c.remove(ctx, id)
}

// remove deletes a file: first its content, so that a partly removed file can be swept.
func (c *Coordinator) remove(ctx context.Context, id string) error {
	if err := c.o.Store.Delete(ctx, contentKey(id)); err != nil {
		return err
	}
	return c.o.Store.Delete(ctx, fileKey(id))
}

// inputs are the files that batches need, and these.
func (c *Coordinator) inputs(ctx context.Context) (map[string]string, error) {
	list, err := all[Record](ctx, c.o.Store, "batches/")
	used := map[string]string{}
	for _, r := range list {
		if !r.Status.Over() {
			used[r.Input] = r.ID
		}
	}
	return used, err
}

// sweep deletes expired data once a minute, and unreferenced data once an hour.
func (c *Coordinator) sweep(ctx context.Context) error {
	now := c.o.Now()
	c.mu.Lock()
	due, whole := c.swept.IsZero() || now.Sub(c.swept) >= reconcileEvery, c.sweptAll.IsZero() || now.Sub(c.sweptAll) >= abandoned
	if due {
		c.swept = now
	}
	c.mu.Unlock()
	if !due {
		return nil
	}
	used, err := c.inputs(ctx)
	if err != nil {
		return err
	}
	files, err := all[fileRecord](ctx, c.o.Store, "files/")
	if err != nil {
		return err
	}
	for _, f := range files {
		if now.Unix() >= int64(f.ExpiresAt) && used[f.ID] == "" {
			if err := c.remove(ctx, f.ID); err != nil {
				return err
			}
		}
	}
	err = errors.Join(c.sweepUploads(ctx, now, files), c.sweepBatches(ctx, now))
	if s, ok := c.o.Store.(Sweeper); ok && whole && err == nil {
		if err = s.Sweep(ctx, now.Add(-abandoned)); err == nil {
			c.mu.Lock()
			c.sweptAll = now
			c.mu.Unlock()
		}
	}
	return err
}

// abandoned is the age at which unfinished uploads are deleted.
const abandoned = time.Hour

// uploaded are identifiers of uploads, with their time.
var uploaded = regexp.MustCompile(`^content/(file-([0-9a-f]{11})[0-9a-f]{20})$`)

// sweepUploads deletes content that never became a file, because the process ended.
func (c *Coordinator) sweepUploads(ctx context.Context, now time.Time, files []fileRecord) error {
	for key, err := range c.o.Store.List(ctx, "content/") {
		if err != nil {
			return err
		}
		part := uploaded.FindStringSubmatch(key)
		if part == nil || slices.ContainsFunc(files, func(f fileRecord) bool { return f.ID == part[1] }) {
			continue
		}
		if at, err := strconv.ParseInt(part[2], 16, 64); err == nil && now.Sub(time.UnixMilli(at)) > abandoned {
			if err := c.o.Store.Delete(ctx, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweepBatches deletes batches that ended long ago, and their remaining results.
func (c *Coordinator) sweepBatches(ctx context.Context, now time.Time) error {
	list, err := all[Record](ctx, c.o.Store, "batches/")
	if err != nil {
		return err
	}
	going := map[string]bool{}
	for _, r := range list {
		going[r.ID] = !r.Status.Over()
		if r.Status.Over() && now.Sub(time.Unix(int64(r.latest()), 0)) >= DefaultKeep {
			if err := c.o.Store.Delete(ctx, batchKey(r.ID)); err != nil {
				return err
			}
		}
	}
	for key, err := range c.o.Store.List(ctx, "results/") {
		if err != nil {
			return err
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(key, "results/"), "/")
		if _, known := going[id]; !known { // it may have begun since
			r, _, err := c.record(ctx, id)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			going[id] = err == nil && !r.Status.Over()
		}
		if !going[id] {
			if err := c.o.Store.Delete(ctx, key); err != nil { // a worker was late
				return err
			}
		}
	}
	return nil
}
