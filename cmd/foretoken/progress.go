package main

import (
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progressDelay is how long loading may take before it shows a bar.
const progressDelay = 300 * time.Millisecond

// progress is a bar on a terminal for work that takes long enough to want one.
type progress struct {
	c     *console
	what  string
	start time.Time
	bar   *progressbar.ProgressBar
}

// newProgress starts to count the time. Elsewhere than on a terminal nothing is shown.
func newProgress(c *console, what string) *progress {
	return &progress{c: c, what: what, start: time.Now()}
}

// report says that done of total bytes are done.
func (p *progress) report(done, total int64) {
	if !p.c.errTerminal || p.bar == nil && time.Since(p.start) < progressDelay {
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(
			total,
			progressbar.OptionSetWriter(p.c.err),
			progressbar.OptionSetDescription(fmt.Sprintf("loading %s", printable(p.what))),
			progressbar.OptionShowBytes(true),
			progressbar.OptionShowTotalBytes(true),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionSetWidth(24),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(),
		)
	}
	_ = p.bar.Set64(done) // a bar that cannot be drawn is no reason to stop loading
}

// end takes the bar off the screen.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
