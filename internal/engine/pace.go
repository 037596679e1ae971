package engine

import (
	"time"

	"github.com/foretoken/foretoken/internal/cost"
)

// pace says how much of a prompt may be prefilled in a round while other sequences wait for their next token.
type pace struct {
	cost *cost.Model
	last time.Duration // of the last round
}

// minChunk is prefilled in any case, for a prompt must end.
const minChunk = 4

// spare is how much longer a round with rows of sequences that generate may take than without prompts: so long that it
// takes limit, or, if limit is 0, half as long again. It is 0 if that is not known.
func (p *pace) spare(rows int, limit time.Duration) time.Duration {
	pass := p.cost.Time(max(rows, 1), 0)
	plain := time.Duration((pass + p.cost.Rest()) * float64(time.Second))
	if limit > 0 && pass > 0 {
		return max(limit-plain, 0)
	}
	return plain / 2
}

// chunk is how many prompt tokens such a round may have, within what limit leaves to spare, of which some is gone.
func (p *pace) chunk(rows int, limit, gone time.Duration) int {
	row := p.cost.PromptRow()
	if !p.cost.Known() || row == 0 {
		return minChunk
	}
	return max(minChunk, int((p.spare(rows, limit)-gone).Seconds()/row)/minChunk*minChunk)
}
