package hubcache

import (
	"fmt"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/internal/hub"
)

// How often the progress of fetching is shown: as bars, or as lines of a log.
const (
	barsEvery  = 100 * time.Millisecond
	linesEvery = 30 * time.Second
	speedOver  = 10 * time.Second // period of the mean speed
)

// pullShow shows how far files are: a bar for each under way and one for all on a terminal,
// and lines elsewhere. The library's bars come one at a time, these do not.
type pullShow struct {
	c     *console.Console
	now   func() time.Time
	width func() int

	files   []*pullFile // under way, in the order they began
	done    map[string]*pullFile
	total   int64 // bytes of all files
	here    int64 // arrived bytes, now or before
	arrived int64 // now
	samples []pullSample
	shown   time.Time
	drawn   int // lines on the screen that are redrawn
}

// pullFile is a file of which something was heard.
type pullFile struct {
	hub.Event
	counted bool      // whether the bytes from before are known
	told    time.Time // when a line last explained a delay
}

// pullSample is the arrived bytes at a time.
type pullSample struct {
	at    time.Time
	bytes int64
}

// newPullShow announces the download.
func newPullShow(c *console.Console, l *hub.Listing, files []hub.File) *pullShow {
	s := &pullShow{c: c, now: time.Now, done: map[string]*pullFile{}}
	s.width = func() int {
		if f, ok := c.Err.(*os.File); ok {
			if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
				return w
			}
		}
		return 80
	}
	for _, f := range files {
		s.total += f.Size
	}
	s.shown = s.now()
	s.samples = []pullSample{{s.shown, 0}}
	console.Tell(c.Err, fmt.Sprintf("%s at %s: %s, %s\n", l.Repo, l.Commit[:12], console.Counted(len(files), "file"), console.ByteText(s.total)))
	return s
}

// bars reports whether there is a terminal that can draw.
func (s *pullShow) bars() bool { return s.c.ErrTerminal && !s.c.Plain }

// event applies an event of a file.
func (s *pullShow) event(e hub.Event) {
	f := s.done[e.File.Path]
	if f == nil {
		f = &pullFile{Event: hub.Event{File: e.File, State: -1}}
		s.done[e.File.Path] = f
		s.files = append(s.files, f)
	}
	s.here += e.Done - f.Done
	if f.counted {
		s.arrived += e.Done - f.Done
	}
	f.counted = f.counted || e.State == hub.Fetching
	changed := f.State != e.State
	f.Event = e
	switch {
	case s.bars():
		s.draw(changed && e.State == hub.Finished)
	case changed && e.State == hub.Finished:
		console.Tell(s.c.Err, fmt.Sprintf("%s, %s\n", e.File.Path, console.ByteText(e.File.Size)))
	case changed && e.State != hub.Fetching && s.now().Sub(f.told) >= linesEvery: // each part of a file may say so
		f.told = s.now()
		console.Tell(s.c.Err, fmt.Sprintf("%s: %s\n", e.File.Path, stateText(e)))
	}
	if now := s.now(); !s.bars() && now.Sub(s.shown) >= linesEvery {
		s.shown = now
		console.Tell(s.c.Err, s.summary()+"\n")
	}
}

// draw redraws the bars if it is time to, or if must.
func (s *pullShow) draw(must bool) {
	now := s.now()
	if !must && now.Sub(s.shown) < barsEvery {
		return
	}
	s.shown = now
	width := s.width() - 1 // the last column would break the line
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", s.drawn)
	}
	var active []*pullFile
	for _, f := range s.files {
		if f.State == hub.Finished {
			b.WriteString(fit(fmt.Sprintf("%s, %s", f.File.Path, console.ByteText(f.File.Size)), width) + "\n")
		} else {
			active = append(active, f)
		}
	}
	s.files = active
	column := 0
	for _, f := range active {
		column = max(column, utf8.RuneCountInString(f.File.Path))
	}
	for _, f := range active {
		b.WriteString(fit(barLine(f.Event, min(column, max(width-barWidth, 8))), width) + "\n")
	}
	b.WriteString(fit(s.summary(), width) + "\n")
	s.drawn = len(active) + 1
	console.Tell(s.c.Err, b.String())
}

// end leaves the last word on the screen.
func (s *pullShow) end() {
	if s.bars() {
		s.draw(true)
	} else if len(s.samples) > 0 {
		console.Tell(s.c.Err, s.summary()+"\n")
	}
}

// summary is the line about all files.
func (s *pullShow) summary() string {
	now := s.now()
	s.samples = append(s.samples, pullSample{now, s.arrived})
	for len(s.samples) > 2 && now.Sub(s.samples[1].at) >= speedOver {
		s.samples = s.samples[1:]
	}
	text := fmt.Sprintf("%s of %s", console.ByteText(s.here), console.ByteText(s.total))
	if s.total > 0 {
		text = fmt.Sprintf("%3d %%, ", s.here*100/s.total) + text
	}
	first := s.samples[0]
	speed := 0.0
	if d := now.Sub(first.at).Seconds(); d > 0 {
		speed = float64(s.arrived-first.bytes) / d
	}
	if s.here < s.total && speed > 0 {
		left := time.Duration(float64(s.total-s.here) / speed * float64(time.Second))
		text += fmt.Sprintf(", %s/s, %s left", console.ByteText(int64(speed)), leftText(left))
	}
	return text
}

// Widths in the line of a file under way.
const (
	barCells = 20
	barWidth = barCells + 26 // with the numbers after it
)

// barLine is the line about a file under way, with a column for its name.
func barLine(e hub.Event, column int) string {
	if e.State != hub.Fetching {
		return e.File.Path + ": " + stateText(e)
	}
	return fmt.Sprintf("%-*s |%s| %s of %s", column, fit(e.File.Path, column), bar(e.Done, e.File.Size, barCells), console.ByteText(e.Done), console.ByteText(e.File.Size))
}

// bar draws done of size, cells wide.
func bar(done, size int64, cells int) string {
	full := cells
	if size > 0 {
		full = int(float64(cells) * float64(max(done, 0)) / float64(size))
	}
	full = min(full, cells)
	return strings.Repeat("█", full) + strings.Repeat(" ", cells-full)
}

// stateText explains a delay.
func stateText(e hub.Event) string {
	if e.State == hub.Waiting {
		return "another program is fetching it; waiting"
	}
	text := "trying again"
	if e.Wait > 0 {
		text = fmt.Sprintf("trying again in %v", e.Wait.Round(time.Second))
	}
	if e.Err != nil {
		text += ": " + console.Printable(strings.TrimPrefix(e.Err.Error(), "hub: "))
	}
	return text
}

// fit cuts a text to a width.
func fit(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

// leftText is a time to wait, as exact as an estimate can be.
func leftText(d time.Duration) string {
	switch minutes := (d + time.Minute - 1) / time.Minute; {
	case d <= time.Minute:
		return fmt.Sprintf("%d s", (d+time.Second-1)/time.Second)
	case minutes < 60:
		return fmt.Sprintf("%d min", minutes)
	default:
		return fmt.Sprintf("%d h %d min", minutes/60, minutes%60)
	}
}
