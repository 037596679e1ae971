// Command dist builds the program for platforms and packs each build, with README, license and the
// licenses of all that is built in, into an archive: a zip file for Windows, tar.gz for others. SHA256SUMS lists their hashes.
//
//	dist linux/amd64 darwin/arm64 windows/amd64 linux/amd64:cuda
//
// Build tags follow a colon and are part of the archive's name.
// The same commit and the same Go release give the same bytes: entries are sorted, and their
// time is that of the commit. The version is that of cmd/foretoken/version.txt, and a tag of the commit must
// agree with it. It runs in the root of the repository and replaces the folder dist.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(platforms []string) error {
	s, err := readSource()
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll("dist"), os.Mkdir("dist", 0o755)); err != nil {
		return err
	}
	var sums strings.Builder
	for _, platform := range slices.Sorted(slices.Values(platforms)) {
		name, data, err := s.archive(platform)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		if err := os.WriteFile(filepath.Join("dist", name), data, 0o644); err != nil {
			return err
		}
		line := fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name)
		sums.WriteString(line)
		fmt.Print(line)
	}
	return os.WriteFile(filepath.Join("dist", "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// source is what is built.
type source struct {
	version string
	commit  string    // with +dirty if the tree has changes
	time    time.Time // of the commit
}

// readSource asks git for the state of the current folder.
func readSource() (*source, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", args...).Output()
		if err != nil {
			return "", fmt.Errorf("git %s: %w", args[0], err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	log, err := git("log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, err
	}
	s := &source{}
	s.commit, log, _ = strings.Cut(log, " ")
	seconds, err := strconv.ParseInt(log, 10, 64)
	if err != nil {
		return nil, err
	}
	s.time = time.Unix(seconds, 0).UTC()
	text, err := os.ReadFile("cmd/foretoken/version.txt")
	if err != nil {
		return nil, err
	}
	s.version = strings.TrimSpace(string(text))
	if tag, err := git("describe", "--tags", "--exact-match", "--match", "v*"); err == nil && tag != "v"+s.version {
		return nil, fmt.Errorf("the commit has the tag %s, but cmd/foretoken/version.txt says %s", tag, s.version)
	}
	changes, err := git("status", "--porcelain")
	if changes != "" {
		s.commit += "+dirty"
	}
	return s, err
}

// archive builds for a platform and packs the result.
func (s *source) archive(platform string) (name string, data []byte, err error) {
	target, tags, _ := strings.Cut(platform, ":")
	system, arch, ok := strings.Cut(target, "/")
	if !ok {
		return "", nil, errors.New("want a platform such as linux/arm64")
	}
	program, pack, extension := "foretoken", tarball, ".tar.gz"
	if system == "windows" {
		program, pack, extension = "foretoken.exe", zipped, ".zip"
	}
	dir, err := os.MkdirTemp("", "dist")
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	built := filepath.Join(dir, program)
	stamps := "-s -w -X main.stampedCommit=" + s.commit
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", tags, "-ldflags", stamps, "-o", built, "./cmd/foretoken")
	build.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", nil, err
	}
	others := filepath.Join(dir, "THIRD_PARTY_LICENSES")
	if err := writeLicenses(others, build.Env, tags); err != nil {
		return "", nil, err
	}
	folder := fmt.Sprintf("foretoken-%s-%s-%s", s.version, system, arch)
	if tags != "" {
		folder += "-" + strings.ReplaceAll(tags, ",", "-")
	}
	var entries []entry
	for _, file := range []string{"LICENSE", "README.md", others, built} { // by name, in the archive too
		text, err := os.ReadFile(file)
		if err != nil {
			return "", nil, err
		}
		e := entry{name: folder + "/" + filepath.Base(file), data: text, mode: 0o644, time: s.time}
		if file == built {
			e.mode = 0o755
		}
		entries = append(entries, e)
	}
	var out bytes.Buffer
	err = pack(&out, entries)
	return folder + extension, out.Bytes(), err
}
