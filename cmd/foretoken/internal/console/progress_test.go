package console

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestProgressWaitsAndEnds(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&Console{Err: &out, ErrTerminal: true}, "big")
	p.start = time.Now().Add(time.Hour) // no machine is too slow to be early
	p.Report(1, 100)
	if out.Len() > 0 {
		t.Errorf("a bar at once: %q", &out)
	}
	p.start = time.Now().Add(-time.Second)
	p.Report(50, 100)
	if !strings.Contains(out.String(), "loading big") || !strings.Contains(out.String(), "50%") {
		t.Errorf("no bar after a second: %q", &out)
	}
	p.End()
	if after := out.String()[strings.LastIndex(out.String(), "big"):]; !strings.Contains(after, "\r") {
		t.Errorf("the bar stays: %q", after)
	}
	out.Reset()
	p = NewProgress(&Console{Err: &out}, "big")
	p.start = time.Now().Add(-time.Second)
	p.Report(50, 100)
	p.End()
	if out.Len() > 0 {
		t.Errorf("a bar where there is no terminal: %q", &out)
	}
}
