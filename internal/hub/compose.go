package hub

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Piece is a range of bytes of a file.
type Piece struct {
	File         File
	Offset, Size int64
}

// check refuses a range that the file does not have.
func (p Piece) check() error {
	if p.Offset < 0 || p.Size < 0 || p.Size > p.File.Size || p.Offset > p.File.Size-p.Size {
		return fmt.Errorf("hub: %s has %d bytes: a range of %d bytes from offset %d is outside of it", p.File.Path, p.File.Size, p.Size, p.Offset)
	}
	return nil
}

// ReadPiece fetches only a range of bytes of a file, into memory, without the cache.
// There is no hash to compare it with.
func (c *Client) ReadPiece(ctx context.Context, l *Listing, p Piece) ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	data := make([]byte, p.Size)
	if _, err := (&fetch{c: c, l: l}).transfer(p.File).fill(ctx, data, p.Offset); err != nil {
		return nil, c.explain(err, l.Repo, l.Revision)
	}
	return data, nil
}

// Composition is a file that the hub does not have: some text and then pieces of files of a
// repository. The text must name the origin of the pieces, since files with equal texts are
// one file.
type Composition struct {
	From   *Listing
	Text   []byte
	Pieces []Piece
}

// size is the bytes of the file.
func (m *Composition) size() (int64, error) {
	n := int64(len(m.Text))
	for _, p := range m.Pieces {
		if err := p.check(); err != nil {
			return 0, err
		}
		if n += p.Size; n < 0 {
			return 0, errors.New("hub: the sum of the pieces overflows")
		}
	}
	return n, nil
}

// Compose puts a composition into the cache as the named file of a listing that was fetched
// before. Only the pieces are requested. The file appears atomically; an interrupted composition
// is resumed. report is that of Fetch.
func (c *Client) Compose(ctx context.Context, m *Composition, l *Listing, name string, report func(Event)) error {
	size, err := m.size()
	if err != nil {
		return err
	}
	file := File{Path: name, Size: size, Hash: fmt.Sprintf("%x", sha256.Sum256(m.Text))}
	f := &fetch{c: c, l: m.From, root: filepath.Join(string(c.cache), l.Repo.folder()), report: report}
	blob := filepath.Join(f.root, blobsFolder, file.Hash)
	unlock, err := c.lock(ctx, filepath.Join(string(c.cache), locksFolder, l.Repo.folder(), file.Hash+".lock"), func() {
		f.tell(Event{File: file, State: Waiting})
	})
	if err != nil {
		return c.cache.diskError(err)
	}
	defer unlock()
	fresh := !hasSize(blob, size)
	if fresh {
		if err := f.compose(ctx, m, file, blob); err != nil {
			return err
		}
	}
	if err := c.place(blob, filepath.Join(f.root, snapshotsFolder, l.Commit, filepath.FromSlash(name)), fresh); err != nil {
		return c.cache.diskError(err)
	}
	f.tell(Event{File: file, State: Finished, Done: size})
	return nil
}

// compose completes the partial file, which is a prefix of the blob at any time.
func (f *fetch) compose(ctx context.Context, m *Composition, file File, blob string) error {
	partial := blob + partialSuffix
	out, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return f.c.cache.diskError(err)
	}
	defer func() { _ = out.Close() }() // closed below, unless something went wrong
	info, err := out.Stat()
	if err != nil {
		return f.c.cache.diskError(err)
	}
	have := min(info.Size(), file.Size)
	if err := f.checkFree(file.Size - have); err != nil {
		return err
	}
	// The text is the name: it is written again, not compared.
	if _, err := out.WriteAt(m.Text, 0); err != nil {
		return f.c.cache.diskError(err)
	}
	at := int64(len(m.Text))
	transfers := map[string]*transfer{} // each knows where its file is
	report := f.report
	defer func() { f.report = report }()
	f.report = func(e Event) {
		if e.File, e.Done = file, at+e.Done; report != nil {
			report(e)
		}
	}
	for _, p := range m.Pieces {
		t := transfers[p.File.Path]
		if t == nil {
			t = f.transfer(p.File)
			transfers[p.File.Path] = t
		}
		skip := min(max(have-at, 0), p.Size)
		t.done.Store(skip)
		if err := t.run(ctx, out, io.Discard, p.Offset+skip, p.Offset+p.Size, at+skip); err != nil {
			return f.c.explain(err, m.From.Repo, m.From.Revision)
		}
		at += p.Size
	}
	if err := errors.Join(out.Truncate(file.Size), out.Sync(), out.Close()); err != nil {
		return f.c.cache.diskError(err)
	}
	return f.c.cache.diskError(os.Rename(partial, blob))
}
