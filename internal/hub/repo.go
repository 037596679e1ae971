package hub

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"unicode"
)

// Repo is the well-formed id of a model repository: ORG/NAME, or NAME for a few old ones.
type Repo string

// folderPrefix is the prefix of folders of models in the cache; those of data sets differ.
const folderPrefix = "models--"

var (
	repoID   = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9._-]{0,95}/)?[A-Za-z0-9_][A-Za-z0-9._-]{0,95}$`)
	commitID = regexp.MustCompile(`^[0-9a-f]{40}$`)
	blobHash = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
)

// ParseName reads ORG/NAME or ORG/NAME@REVISION. The revision is empty if there is none.
func ParseName(name string) (repo Repo, revision string, err error) {
	id, revision, given := strings.Cut(name, "@")
	switch {
	case !repoID.MatchString(id) || strings.Contains(id, "--") || strings.Contains(id, ".."):
		return "", "", fmt.Errorf("hub: repository %q: want ORG/NAME, such as Qwen/Qwen3.5-4B", id)
	case given && !plainPath(revision):
		return "", "", badRevision(Repo(id), revision)
	}
	return Repo(id), revision, nil
}

func badRevision(repo Repo, revision string) error {
	return fmt.Errorf("hub: revision %q of %s: want a branch, a tag or a commit", revision, repo)
}

// folder is the name of the repository's folder in the cache.
func (r Repo) folder() string { return folderPrefix + strings.ReplaceAll(string(r), "/", "--") }

// name is the id without the organization.
func (r Repo) name() string { return string(r[strings.LastIndex(string(r), "/")+1:]) }

// repoOf is the repository whose folder in the cache has the given name.
func repoOf(folder string) (Repo, bool) {
	id, ok := strings.CutPrefix(folder, folderPrefix)
	repo, _, err := ParseName(strings.Replace(id, "--", "/", 1))
	return repo, ok && err == nil && repo.folder() == folder
}

// plainPath reports whether a name is a path that stays inside its folder on every system
// and does not steer a terminal.
func plainPath(name string) bool {
	return fs.ValidPath(name) && name != "." && !strings.ContainsAny(name, `\:`) && !strings.ContainsFunc(name, unicode.IsControl)
}
