package hubcache

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/internal/hub"
)

func TestPullShowCountsWhatArrives(t *testing.T) {
	var text strings.Builder
	now := time.Unix(0, 0)
	small, large := hub.File{Path: "small", Size: 1000}, hub.File{Path: "a/" + strings.Repeat("large", 20), Size: 9_999_000}
	c := &console.Console{Err: &text, ErrTerminal: true}
	s := newPullShow(c, &hub.Listing{Repo: "a/b", Commit: "0123456789abcdef0123456789abcdef01234567"}, []hub.File{small, large})
	s.now, s.width, s.shown, s.samples = func() time.Time { return now }, func() int { return 60 }, now, []pullSample{{at: now}}
	step := func(d time.Duration, e hub.Event) string {
		now = now.Add(d)
		text.Reset()
		s.event(e)
		return text.String()
	}
	if got := step(0, hub.Event{File: large, Done: 5_000_000}); got != "" {
		t.Errorf("drawn at once: %q", got)
	}
	got := step(time.Second, hub.Event{File: large, Done: 6_000_000})
	want := "a/largelarge… |████████████        | 6 MB of 10 MB\n 60 %, 6 MB of 10 MB, 1 MB/s, 4 s left\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got = step(time.Millisecond, hub.Event{File: large, Done: 6_000_001}); got != "" {
		t.Errorf("drawn after a millisecond: %q", got)
	}
	got = step(time.Second, hub.Event{File: large, State: hub.Retrying, Done: 6_000_000, Wait: 3 * time.Second, Err: fmt.Errorf("hub: \x1b[31mno")})
	if want = "\x1b[2A\r\x1b[J"; !strings.HasPrefix(got, want) || !strings.Contains(got, "…\n") || strings.Contains(got, "[31m") && strings.Contains(got, "\x1b[31m") {
		t.Errorf("got %q", got)
	}
	got = step(time.Millisecond, hub.Event{File: small, State: hub.Finished, Done: 1000})
	if !strings.Contains(got, "small, 1 kB\n") || !strings.Contains(got, " 60 %, 6 MB of 10 MB") {
		t.Errorf("a file that was there: %q", got)
	}
	got = step(time.Second, hub.Event{File: large, State: hub.Finished, Done: large.Size})
	if !strings.HasSuffix(got, "\n100 %, 10 MB of 10 MB\n") || strings.Count(got, "\n") != 2 {
		t.Errorf("at the end: %q", got)
	}
	for n, want := range map[int64]string{0: "0 bytes", 999: "999 bytes", 1000: "1 kB", 999_600: "1 MB", 8_412_000_000: "8.41 GB", 5e15: "5e+03 TB"} {
		if got := console.ByteText(n); got != want {
			t.Errorf("%d bytes are %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{time.Nanosecond: "1 s", 59 * time.Second: "59 s", 90 * time.Second: "2 min", 150 * time.Minute: "2 h 30 min"} {
		if got := leftText(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

func TestPullShowWritesLinesElsewhere(t *testing.T) {
	var text strings.Builder
	now := time.Unix(0, 0)
	f := hub.File{Path: "large", Size: 4_000_000}
	s := newPullShow(&console.Console{Err: &text}, &hub.Listing{Repo: "a/b", Commit: "0123456789abcdef0123456789abcdef01234567"}, []hub.File{f})
	s.now, s.shown, s.samples = func() time.Time { return now }, now, []pullSample{{at: now}}
	for _, e := range []hub.Event{
		{File: f, State: hub.Waiting},
		{File: f},
		{File: f, Done: 1_000_000},
		{File: f, State: hub.Retrying, Done: 1_000_000, Err: fmt.Errorf("hub: gone"), Wait: time.Second},
		{File: f, Done: 3_000_000},
		{File: f, State: hub.Finished, Done: 4_000_000},
	} {
		now = now.Add(10 * time.Second)
		s.event(e)
	}
	s.end()
	const want = "a/b at 0123456789ab: 1 file, 4 MB\n" +
		"large: another program is fetching it; waiting\n" +
		" 25 %, 1 MB of 4 MB, 33.3 kB/s, 2 min left\n" +
		"large: trying again in 1s: gone\n" +
		"large, 4 MB\n100 %, 4 MB of 4 MB\n100 %, 4 MB of 4 MB\n"
	if got := text.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
