package console

import (
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progressDelay is how long loading may take before it shows a bar.
const progressDelay = 300 * time.Millisecond

// Progress is a bar on a terminal for long work.
type Progress struct {
	c     *Console
	what  string
	start time.Time
	bar   *progressbar.ProgressBar
}

// NewProgress starts to count the time. Elsewhere than on a terminal nothing is shown.
func NewProgress(c *Console, what string) *Progress {
	return &Progress{c: c, what: what, start: time.Now()}
}

// Report sets the progress to done of total bytes.
func (p *Progress) Report(done, total int64) {
	if !p.c.ErrTerminal || p.bar == nil && time.Since(p.start) < progressDelay {
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(
			total,
			progressbar.OptionSetWriter(p.c.Err),
			progressbar.OptionSetDescription(fmt.Sprintf("loading %s", Printable(p.what))),
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

// End removes the bar from the screen.
func (p *Progress) End() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
