package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Cache is the folder of a cache. It need not exist.
type Cache string

// Model is a repository in the cache.
type Model struct {
	Repo       Repo
	Folder     string
	Size       int64      // bytes on disk, including unfinished files
	Unfinished int64      // bytes of Size in unfinished files
	Snapshots  []Snapshot // the newest first
}

// Snapshot is the cached files of one commit.
type Snapshot struct {
	Repo   Repo
	Commit string
	Refs   []string // branches and tags that stood for it
	Folder string
	Files  []string  // slash-separated, sorted
	Size   int64     // bytes of the files
	Time   time.Time // when the last file came
}

// Repos lists the repositories of models in the cache, sorted.
func (c Cache) Repos() ([]Repo, error) {
	entries, err := os.ReadDir(string(c))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("hub: cache: %w", err)
	}
	var repos []Repo
	for _, e := range entries {
		if repo, ok := repoOf(e.Name()); ok {
			repos = append(repos, repo)
		}
	}
	slices.Sort(repos)
	return repos, nil
}

// Model is the cached part of a repository; ErrNotCached if there is none.
func (c Cache) Model(repo Repo) (*Model, error) {
	m := &Model{Repo: repo, Folder: filepath.Join(string(c), repo.folder())}
	if _, err := os.Stat(m.Folder); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("hub: %s is %w %s", repo, ErrNotCached, string(c))
	}
	blobs, err := os.ReadDir(filepath.Join(m.Folder, blobsFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("hub: cache: %w", err)
	}
	for _, e := range blobs {
		info, err := e.Info()
		if err != nil {
			continue // gone in the meantime
		}
		m.Size += info.Size()
		if strings.HasSuffix(e.Name(), partialSuffix) {
			m.Unfinished += info.Size()
		}
	}
	refs, err := m.refs()
	if err != nil {
		return nil, err
	}
	folders, err := os.ReadDir(filepath.Join(m.Folder, snapshotsFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("hub: cache: %w", err)
	}
	for _, e := range folders {
		if !commitID.MatchString(e.Name()) {
			continue
		}
		s, unlinked, err := m.snapshot(e.Name())
		if err != nil {
			return nil, err
		}
		s.Refs = refs[s.Commit]
		m.Size += unlinked
		m.Snapshots = append(m.Snapshots, s)
	}
	slices.SortFunc(m.Snapshots, func(a, b Snapshot) int { return b.Time.Compare(a.Time) })
	return m, nil
}

// snapshot reads the folder of a commit. unlinked is the size of files that are not links to blobs.
func (m *Model) snapshot(commit string) (s Snapshot, unlinked int64, err error) {
	s = Snapshot{Repo: m.Repo, Commit: commit, Folder: filepath.Join(m.Folder, snapshotsFolder, commit)}
	err = filepath.WalkDir(s.Folder, func(at string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := os.Stat(at) // of the target of a link
		if err != nil || !info.Mode().IsRegular() {
			return nil // a link without a blob is a file that is not there
		}
		name, err := filepath.Rel(s.Folder, at)
		if err != nil {
			return err
		}
		s.Files = append(s.Files, filepath.ToSlash(name))
		s.Size += info.Size()
		if e.Type().IsRegular() {
			unlinked += info.Size()
		}
		if info.ModTime().After(s.Time) {
			s.Time = info.ModTime()
		}
		return nil
	})
	if err != nil {
		return s, 0, fmt.Errorf("hub: cache: %w", err)
	}
	return s, unlinked, nil
}

// refs are the branches and tags of a repository, by commit, sorted.
func (m *Model) refs() (map[string][]string, error) {
	root := filepath.Join(m.Folder, refsFolder)
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(at string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		if commit, ok := readRef(at); ok {
			found[commit] = append(found[commit], filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("hub: cache: %w", err)
	}
	return found, nil
}

// readRef is the commit that the file of a branch or tag names.
func readRef(file string) (commit string, ok bool) {
	data, err := os.ReadFile(file)
	commit = strings.TrimSpace(string(data))
	return commit, err == nil && commitID.MatchString(commit)
}

// Find returns the snapshot that a name stands for: ORG/NAME, or NAME alone if only one
// repository is called so, each with @REVISION or without. Without a revision it is main, or the
// newest snapshot if main was never fetched. It is ErrNotCached if there is none. It sends no request.
func (c Cache) Find(name string) (*Snapshot, error) {
	repo, revision, err := c.Lookup(name)
	if err != nil {
		return nil, err
	}
	m, err := c.Model(repo)
	if err != nil {
		return nil, err
	}
	return m.Snapshot(revision)
}

// Lookup is ParseName for the repositories in the cache, whose organization may be left
// out. Upper and lower case differ only if both are there.
func (c Cache) Lookup(text string) (repo Repo, revision string, err error) {
	name, revision, err := ParseName(text)
	if err != nil {
		return "", "", err
	}
	all, err := c.Repos()
	if err != nil {
		return "", "", err
	}
	part := func(r Repo) string { return string(r) }
	if !strings.Contains(string(name), "/") && !slices.Contains(all, name) {
		part = Repo.name
	}
	var exact, alike []Repo
	for _, r := range all {
		if part(r) == string(name) {
			exact = append(exact, r)
		}
		if strings.EqualFold(part(r), string(name)) {
			alike = append(alike, r)
		}
	}
	if len(exact) > 0 {
		alike = exact
	}
	switch len(alike) {
	case 0:
		return "", "", fmt.Errorf("hub: %s is %w %s", name, ErrNotCached, string(c))
	case 1:
		return alike[0], revision, nil
	}
	return "", "", fmt.Errorf("hub: %s is ambiguous, it matches %s: give the full name", name, join(alike))
}

// Snapshot is the snapshot of a revision: a branch, a tag, a commit or a prefix of
// one. Without a revision it is main, or the newest if main was never fetched. It is
// ErrNotCached if there is none.
func (m *Model) Snapshot(revision string) (*Snapshot, error) {
	if len(m.Snapshots) == 0 {
		return nil, fmt.Errorf("hub: %s has not been downloaded yet: its files are %w", m.Repo, ErrNotCached)
	}
	var begin []*Snapshot
	for i := range m.Snapshots {
		s := &m.Snapshots[i]
		if slices.Contains(s.Refs, revision) || revision == "" && slices.Contains(s.Refs, mainRevision) {
			return s, nil
		}
		if len(revision) >= 7 && strings.HasPrefix(s.Commit, revision) {
			begin = append(begin, s)
		}
	}
	switch {
	case revision == "":
		return &m.Snapshots[0], nil
	case len(begin) == 1:
		return begin[0], nil
	}
	var known []string
	for _, s := range m.Snapshots {
		known = append(known, append(s.Refs, s.Commit[:12])...)
	}
	return nil, fmt.Errorf("hub: revision %q of %s is %w; cached revisions: %s", revision, m.Repo, ErrNotCached, strings.Join(known, ", "))
}

// Path is the path to open of a snapshot: its folder, the GGUF file in it, or a folder in it. For a
// file in parts it is the first part.
func (s *Snapshot) Path() (string, error) {
	if slices.ContainsFunc(s.Files, func(f string) bool { return matchesWhole(weightFiles, f) && f != indexFile }) {
		return s.Folder, nil
	}
	files := make([]File, len(s.Files))
	for i, f := range s.Files {
		files[i].Path = f
	}
	var names []string
	for _, v := range variantsOf(files) {
		names = append(names, filepath.Join(s.Folder, filepath.FromSlash(v.files[0].Path)))
	}
	for _, v := range foldersOf(files) {
		names = append(names, filepath.Join(s.Folder, filepath.FromSlash(v.name)))
	}
	switch len(names) {
	case 0:
		return "", fmt.Errorf("hub: the weights of %s are %w", s.Repo, ErrNotCached)
	case 1:
		return names[0], nil
	}
	return "", fmt.Errorf("hub: %s has several models: give the file of one:\n  %s", s.Repo, strings.Join(names, "\n  "))
}

func join(repos []Repo) string {
	names := make([]string, len(repos))
	for i, r := range repos {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}
