package main

import (
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

func TestVersionNamesTheCommit(t *testing.T) {
	vcs := func(modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "aaaaaaaaaaaabbbb"},
			{Key: "vcs.modified", Value: modified},
		}}
	}
	name := strings.TrimSpace(versionText)
	end := ", " + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH
	for _, c := range []struct {
		commit string
		info   *debug.BuildInfo
		want   string
	}{
		{"", &debug.BuildInfo{}, ""},
		{"", vcs("false"), ", commit aaaaaaaaaaaa"},
		{"", vcs("true"), ", commit aaaaaaaaaaaa, dirty"},
		{"cccccccccccccccc", &debug.BuildInfo{}, ", commit cccccccccccc"},
		{"cccccccccccccccc+dirty", &debug.BuildInfo{}, ", commit cccccccccccc, dirty"},
		{"cccc", vcs("false"), ", commit cccc"},
	} {
		if got := describeBuild(c.commit, c.info); got != name+c.want+end {
			t.Errorf("%q: %q, want %q", c.commit, got, name+c.want+end)
		}
	}
}

// The newest section of the changelog is the version of the program, marked as unreleased if the version is.
func TestChangelogHasTheVersion(t *testing.T) {
	text := filetest.Read(t, "../../CHANGELOG.md")
	heading := regexp.MustCompile(`(?m)^## (.*)$`).FindStringSubmatch(string(text))
	want, dev := strings.CutSuffix(strings.TrimSpace(versionText), "-dev")
	if dev {
		want += " (unreleased)"
	}
	if heading == nil || heading[1] != want {
		t.Errorf("the first section of CHANGELOG.md is %q, want %q", heading, want)
	}
}
