package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestVersionPrefersTheStamp(t *testing.T) {
	vcs := func(modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20260102030405-aaaaaaaaaaaa"}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "aaaaaaaaaaaabbbb"},
			{Key: "vcs.modified", Value: modified},
		}}
	}
	end := ", " + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH
	for _, c := range []struct {
		name, commit string
		info         *debug.BuildInfo
		want         string
	}{
		{"", "", &debug.BuildInfo{}, "unknown"},
		{"", "", vcs("false"), "v0.0.0-20260102030405-aaaaaaaaaaaa, commit aaaaaaaaaaaa"},
		{"", "", vcs("true"), "v0.0.0-20260102030405-aaaaaaaaaaaa, commit aaaaaaaaaaaa, dirty"},
		{"v0.1.0", "cccccccccccccccc", &debug.BuildInfo{}, "v0.1.0, commit cccccccccccc"},
		{"v0.1.0+dirty", "cccc", &debug.BuildInfo{}, "v0.1.0+dirty, commit cccc, dirty"},
		{"v0.1.0", "cccc", vcs("false"), "v0.1.0, commit cccc"},
	} {
		if got := describeBuild(c.name, c.commit, c.info); got != c.want+end {
			t.Errorf("%q %q: %q, want %q", c.name, c.commit, got, c.want+end)
		}
	}
}
