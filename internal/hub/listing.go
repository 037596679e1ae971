package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Limits on the description of a repository.
const (
	maxAnswer = 32 << 20 // bytes
	maxFiles  = 100_000
)

// mainRevision is the default branch.
const mainRevision = "main"

// Listing is the files of a repository at one commit.
type Listing struct {
	Repo     Repo
	Revision string // as requested
	Commit   string
	Files    []File // by path
}

// File is a file of a repository.
type File struct {
	Path string // slash-separated; stays inside the repository
	Size int64
	// Hash is the SHA-256 of a large file, or the SHA-1 that git gives a small one, in hex.
	Hash string
}

// List asks the hub for the files of a revision of a repository. Without a revision it is main.
func (c *Client) List(ctx context.Context, repo Repo, revision string) (*Listing, error) {
	if revision == "" {
		revision = mainRevision
	}
	if !plainPath(revision) {
		return nil, badRevision(repo, revision)
	}
	if c.offline {
		return nil, fmt.Errorf("hub: the files of %s are not listed: %w", repo, ErrOffline)
	}
	var info struct {
		SHA string `json:"sha"`
	}
	api := c.endpoint.JoinPath("api", "models", string(repo))
	_, err := c.getJSON(ctx, api.JoinPath("revision", url.PathEscape(revision)), &info)
	if err != nil {
		return nil, c.explain(err, repo, revision)
	}
	if !commitID.MatchString(info.SHA) {
		return nil, fmt.Errorf("hub: %s: the hub gives %.60q as the commit of %s", repo, info.SHA, revision)
	}
	l := &Listing{Repo: repo, Revision: revision, Commit: info.SHA}
	for page := api.JoinPath("tree", info.SHA); page != nil; {
		query := page.Query()
		query.Set("recursive", "true")
		page.RawQuery = query.Encode()
		var entries []treeEntry
		if page, err = c.getJSON(ctx, page, &entries); err != nil {
			return nil, c.explain(err, repo, revision)
		}
		files, err := filesOf(entries)
		if err != nil {
			return nil, fmt.Errorf("hub: %s: %w", repo, err)
		}
		if l.Files = append(l.Files, files...); len(l.Files) > maxFiles || page != nil && len(entries) == 0 {
			return nil, fmt.Errorf("hub: %s: the list of files does not end", repo)
		}
	}
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("hub: %s: %w", repo, err)
	}
	return l, nil
}

// check sorts the files, and refuses two of one name and more than can be counted.
func (l *Listing) check() error {
	slices.SortFunc(l.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	total := int64(0)
	for i, f := range l.Files {
		if i > 0 && l.Files[i-1].Path == f.Path {
			return fmt.Errorf("file %q is listed twice", f.Path)
		}
		if f.Size > math.MaxInt64-total {
			return errors.New("the sum of the file sizes overflows")
		}
		total += f.Size
	}
	return nil
}

// treeEntry is a file or folder as the hub lists it.
type treeEntry struct {
	Type string `json:"type"`
	Path string `json:"path"`
	OID  string `json:"oid"`
	Size int64  `json:"size"`
	LFS  *struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	} `json:"lfs"`
}

// filesOf are the files among the entries, with safe names and sizes.
func filesOf(entries []treeEntry) ([]File, error) {
	var files []File
	for _, e := range entries {
		if e.Type != "file" {
			continue
		}
		f := File{Path: e.Path, Size: e.Size, Hash: e.OID}
		if e.LFS != nil {
			f.Size, f.Hash = e.LFS.Size, e.LFS.OID
		}
		switch {
		case !plainPath(f.Path):
			return nil, fmt.Errorf("file name %.200q is not a path inside the repository", f.Path)
		case f.Size < 0:
			return nil, fmt.Errorf("file %q has a size of %d", f.Path, f.Size)
		case !blobHash.MatchString(f.Hash) || e.LFS != nil && len(f.Hash) != 64 || e.LFS == nil && len(f.Hash) != 40:
			return nil, fmt.Errorf("file %q has the hash %.100q, want SHA-1 or SHA-256 in hex", f.Path, f.Hash)
		}
		files = append(files, f)
	}
	return files, nil
}

// getJSON decodes an answer of the API, and returns the address of the next page, nil
// if it is the last. A hub that cannot be reached at all is not retried: the caller
// shows the error at once.
func (c *Client) getJSON(ctx context.Context, at *url.URL, v any) (next *url.URL, err error) {
	for failures := 0; ; failures++ {
		err = c.ask(ctx, http.MethodGet, at, "", func(r *http.Response, at *url.URL) error {
			data, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer+1))
			if err != nil {
				return err
			}
			if len(data) > maxAnswer {
				return &fatalError{fmt.Errorf("hub: %s: the answer has more than %d bytes", shown(at), maxAnswer)}
			}
			if err := json.Unmarshal(data, v); err != nil {
				return &fatalError{fmt.Errorf("hub: %s does not answer like a hub: %w", shown(at), err)}
			}
			next = nextPage(at, r.Header)
			return nil
		})
		wait, ok := c.again(err, failures)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrUnreachable) || !ok {
			return next, err
		}
		if err := c.sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

var nextLink = regexp.MustCompile(`<([^<>]*)>\s*;\s*rel="?next"?`)

// nextPage is the address of the next page, by the Link header. Only its query counts:
// mirrors of a hub pass the header on with the address of the original.
func nextPage(at *url.URL, h http.Header) *url.URL {
	m := nextLink.FindStringSubmatch(h.Get("Link"))
	if m == nil {
		return nil
	}
	link, err := url.Parse(m[1])
	if err != nil {
		return nil
	}
	next := *at
	next.RawQuery = link.RawQuery
	return &next
}
