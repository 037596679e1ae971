package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Remove removes a snapshot from the cache, with the contents that no other snapshot of
// the repository needs, and the repository with its last snapshot.
func (c Cache) Remove(s *Snapshot) error {
	m, err := c.Model(s.Repo)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(m.Snapshots), func(o Snapshot) bool { return o.Commit == s.Commit })
	switch len(others) {
	case len(m.Snapshots):
		return fmt.Errorf("hub: commit %s of %s is %w", s.Commit, s.Repo, ErrNotCached)
	case 0:
		return c.RemoveAll(s.Repo)
	}
	refs, err := m.refs()
	if err != nil {
		return err
	}
	var paths []string
	for _, ref := range refs[s.Commit] {
		paths = append(paths, filepath.Join(m.Folder, refsFolder, filepath.FromSlash(ref)))
	}
	paths = append(paths, s.Folder)
	needed := map[string]bool{}
	for i := range others {
		for _, blob := range others[i].blobs() {
			needed[blob] = true
		}
	}
	for _, blob := range s.blobs() {
		if !needed[blob] {
			paths = append(paths, blob)
		}
	}
	return c.removePaths(paths)
}

// RemoveAll removes a repository from the cache.
func (c Cache) RemoveAll(repo Repo) error {
	folder := filepath.Join(string(c), repo.folder())
	if _, err := os.Lstat(folder); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hub: %s is %w %s", repo, ErrNotCached, string(c))
	}
	return c.removePaths([]string{
		filepath.Join(folder, refsFolder), filepath.Join(folder, snapshotsFolder), folder,
		filepath.Join(string(c), locksFolder, repo.folder()),
	})
}

// removePaths removes files and folders in the given order, links before their targets:
// if this is interrupted, no link is broken.
func (c Cache) removePaths(paths []string) error {
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return c.diskError(err)
		}
	}
	return nil
}

// blobs are the paths of the targets of the snapshot's links, without those outside of
// the repository.
func (s *Snapshot) blobs() []string {
	folder := filepath.Join(filepath.Dir(filepath.Dir(s.Folder)), blobsFolder)
	var found []string
	for _, name := range s.Files {
		path := filepath.Join(s.Folder, filepath.FromSlash(name))
		target, err := os.Readlink(path)
		if err != nil {
			continue // a regular file, which is removed with its folder
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		if filepath.Dir(target) == folder {
			found = append(found, target)
		}
	}
	return found
}
