package console

import (
	"time"

	"github.com/schollz/progressbar/v3"
)

// progressDelay is how long loading may take before it shows a bar.
const progressDelay = 300 * time.Millisecond

// Progress is a bar on a terminal for long work.
type Progress struct {
	c     *Console
	what  string
	start time.Time // of the bar
	bar   *progressbar.ProgressBar
}

// NewProgress is the bar of a model that is loaded. Elsewhere than on a terminal nothing is shown.
func NewProgress(c *Console, model string) *Progress {
	return &Progress{c: c, what: "loading " + Printable(model), start: time.Now().Add(progressDelay)}
}

// NewBar is a bar that is shown at once, where NewProgress would show one.
func NewBar(c *Console) *Progress { return &Progress{c: c} }

// Report sets the progress to done of total bytes.
func (p *Progress) Report(done, total int64) { p.Describe(p.what, done, total) }

// Describe is Report with a new description.
func (p *Progress) Describe(what string, done, total int64) {
	if !p.c.ErrTerminal || p.bar == nil && time.Now().Before(p.start) {
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(
			total,
			progressbar.OptionSetWriter(p.c.Err),
			progressbar.OptionSetDescription(what),
			progressbar.OptionShowBytes(true),
			progressbar.OptionShowTotalBytes(true),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionSetWidth(24),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(),
		)
	}
	if what != p.what {
		p.what = what
		p.bar.Describe(what)
	}
	_ = p.bar.Set64(done) // a bar that cannot be drawn is no reason to stop
}

// End removes the bar from the screen.
func (p *Progress) End() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
