package engine

import "time"

// pace knows how long rounds take, to say how much of a prompt may be prefilled in one while
// other sequences wait for their next token.
type pace struct {
	plain float64 // seconds of a round without prompts; 0: not known
	token float64 // seconds that a token of a prompt adds; 0: not known
}

const (
	paceRate = 0.1
	// minChunk is prefilled in any case, for a prompt must end.
	minChunk = 4
)

// round takes in what a round took in which a number of prompt tokens was prefilled, beside
// sequences that generated or not.
func (p *pace) round(took time.Duration, prompt int, generating bool) {
	x := took.Seconds()
	switch {
	case prompt == 0:
		p.plain = follow(p.plain, x)
	case generating && p.plain > 0:
		p.token = follow(p.token, max(x-p.plain, 0.1*x)/float64(prompt))
	case prompt >= minChunk:
		p.token = follow(p.token, x/float64(prompt))
	}
}

// chunk is how many prompt tokens a round may have beside sequences that generate, for it to
// take no longer than limit, or, if limit is 0, half as long again as without them.
func (p *pace) chunk(limit time.Duration) int {
	if p.plain == 0 || p.token == 0 {
		return minChunk
	}
	spare := p.plain / 2
	if limit > 0 {
		spare = limit.Seconds() - p.plain
	}
	return max(minChunk, int(spare/p.token)/minChunk*minChunk)
}

// follow moves an average towards x, which counts at most twice what is usual: a round in
// which the machine did something else is not to decide.
func follow(average, x float64) float64 {
	if average == 0 {
		return x
	}
	return average + paceRate*(min(x, 2*average)-average)
}
