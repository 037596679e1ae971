package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// enoughBytes is the progress of an attempt that resets the count of failures.
const enoughBytes = 64 << 10

// transfer is a file on its way.
type transfer struct {
	f    *fetch
	c    *Client
	file File
	done atomic.Int64 // bytes that are here

	mu sync.Mutex // protects at, and is held during its request
	at *url.URL   // address of the contents; nil: not known
}

func (f *fetch) transfer(file File) *transfer { return &transfer{f: f, c: f.c, file: file} }

// arrived counts bytes.
func (t *transfer) arrived(n int64) {
	t.f.tell(Event{File: t.file, State: Fetching, Done: t.done.Add(n)})
}

// part is a piece of a file in memory.
type part struct {
	data   []byte
	start  int64
	n      int // bytes of data that have arrived
	err    error
	filled chan struct{} // closed when n and err are final
}

// run fetches the bytes from one offset of the file to another, and writes them to out, where
// the first has its place at the offset at, and to sum. Parts arrive side by side and are
// written in order, so that out never has a hole: also after an error it has a prefix.
func (t *transfer) run(ctx context.Context, out *os.File, sum io.Writer, from, to, at int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts := make(chan *part, cap(t.c.buffers)) // a part has a buffer: there are never more
	go t.dispatch(ctx, parts, from, to)
	var failed error
	done := from
	for p := range parts {
		<-p.filled
		if failed == nil {
			done = p.start + int64(p.n)
			_, _ = sum.Write(p.data[:p.n]) // a hash does not fail
			_, err := out.WriteAt(p.data[:p.n], at+p.start-from)
			if failed = p.err; err != nil {
				failed = t.c.cache.diskError(err)
			}
			if failed != nil {
				cancel()
			}
		}
		t.c.buffers <- p.data
	}
	if failed == nil && done < to {
		failed = ctx.Err() // no part was started any more
	}
	return failed
}

// dispatch starts the parts in the order of the file, as buffers become free. The first of
// the running parts always has a buffer, so the file makes progress.
func (t *transfer) dispatch(ctx context.Context, parts chan<- *part, from, to int64) {
	defer close(parts)
	for start := from; start < to; {
		var buffer []byte
		select {
		case <-ctx.Done():
			return
		case buffer = <-t.c.buffers:
		}
		n := int(min(int64(t.c.chunk), to-start))
		if cap(buffer) < n {
			buffer = make([]byte, n)
		}
		p := &part{data: buffer[:n], start: start, filled: make(chan struct{})}
		go func() {
			defer close(p.filled)
			p.n, p.err = t.fill(ctx, p.data, p.start)
		}()
		parts <- p
		start += int64(n)
	}
}

// fill fetches the bytes of the file from start on into data, with as many attempts as
// needed. It returns the number of bytes in data.
func (t *transfer) fill(ctx context.Context, data []byte, start int64) (n int, err error) {
	var stale *url.URL // an address that is not good any more
	for failures := 0; n < len(data); failures++ {
		before := n
		var at *url.URL
		if at, err = t.where(ctx, stale); err == nil {
			if n, err = t.get(ctx, at, data, start, n); err == nil {
				break
			}
		}
		if ctx.Err() != nil {
			return n, ctx.Err()
		}
		if n-before >= enoughBytes {
			failures = 0
		}
		wait, ok := t.c.again(err, failures)
		var status *statusError
		if errors.As(err, &status) && status.refused() && at != nil && !t.c.ours(at) && failures+1 < maxFailures {
			stale, wait, ok = at, 0, true // signed addresses are good for an hour or so
		}
		if !ok {
			return n, err
		}
		t.f.tell(Event{File: t.file, State: Retrying, Done: t.done.Load(), Err: err, Wait: wait})
		if err := t.c.sleep(ctx, wait); err != nil {
			return n, err
		}
	}
	return n, nil
}

// where is the address of the contents, requested from the hub once for all parts, and
// again if it is the stale one.
func (t *transfer) where(ctx context.Context, stale *url.URL) (*url.URL, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at != nil && t.at != stale {
		return t.at, nil
	}
	l := t.f.l
	address := t.c.endpoint.JoinPath(string(l.Repo), "resolve", l.Commit, escapePath(t.file.Path))
	err := t.c.ask(ctx, http.MethodHead, address, "", func(r *http.Response, at *url.URL) error {
		tag := strings.Trim(strings.TrimPrefix(r.Header.Get("X-Linked-Etag"), "W/"), `"`)
		size := r.Header.Get("X-Linked-Size")
		if tag != "" && tag != t.file.Hash || size != "" && size != strconv.FormatInt(t.file.Size, 10) {
			return &fatalError{fmt.Errorf("hub: %s is listed with %d bytes and the hash %s, but served with %.40s and %.100s: try again later",
				t.file.Path, t.file.Size, t.file.Hash, size, tag)}
		}
		t.at = at
		return nil
	})
	return t.at, err
}

// get fetches the missing bytes of data, of which have exist, by one request. It
// returns the new number of bytes.
func (t *transfer) get(ctx context.Context, at *url.URL, data []byte, start int64, have int) (n int, err error) {
	n = have
	first, last := start+int64(have), start+int64(len(data))-1
	err = t.c.ask(ctx, http.MethodGet, at, fmt.Sprintf("bytes=%d-%d", first, last), func(r *http.Response, at *url.URL) error {
		switch whole := start == 0 && int64(len(data)) == t.file.Size; {
		case r.StatusCode == http.StatusPartialContent:
			if err := t.checkRange(r.Header.Get("Content-Range"), first, last); err != nil {
				return err
			}
		case r.StatusCode == http.StatusOK && whole: // the whole file instead of the requested part
			t.arrived(int64(-n))
			n = 0
		default:
			return &fatalError{fmt.Errorf("hub: %s answers %d %s instead of the requested part of the file: use another HF_ENDPOINT",
				shown(at), r.StatusCode, http.StatusText(r.StatusCode))}
		}
		if want := int64(len(data) - n); r.ContentLength > want {
			return t.tooLong(at)
		}
		for n < len(data) {
			m, err := r.Body.Read(data[n:])
			n += m
			t.arrived(int64(m))
			if n < len(data) && err != nil {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return err
			}
		}
		if m, _ := r.Body.Read(make([]byte, 1)); m > 0 {
			return t.tooLong(at)
		}
		return nil
	})
	return n, err
}

func (t *transfer) tooLong(at *url.URL) error {
	return &fatalError{fmt.Errorf("hub: %s sends more than the %[3]d bytes of %[2]s: use another HF_ENDPOINT", shown(at), t.file.Path, t.file.Size)}
}

// checkRange compares the range that a server sends with the requested one.
func (t *transfer) checkRange(header string, first, last int64) error {
	want := fmt.Sprintf("bytes %d-%d/", first, last)
	total, ok := strings.CutPrefix(header, want)
	if ok && (total == "*" || total == strconv.FormatInt(t.file.Size, 10)) {
		return nil
	}
	return &fatalError{fmt.Errorf("hub: %s: the server sends %.100q, want %q: use another HF_ENDPOINT", t.file.Path, header, want+strconv.FormatInt(t.file.Size, 10))}
}

// escapePath escapes each part of a path for an address.
func escapePath(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}
