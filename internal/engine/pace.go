package engine

import "time"

// pace knows how long rounds take, to say how much of a prompt may be prefilled in one while
// other sequences wait for their next token.
type pace struct {
	plain float64 // seconds of a round without prompts; 0: not known
	token float64 // seconds that a token of a prompt adds; 0: not known
	last  time.Duration
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
	p.last = took
	switch {
	case prompt == 0:
		p.plain = follow(p.plain, x)
	case generating && p.plain > 0:
		p.token = follow(p.token, max(x-p.plain, 0.1*x)/float64(prompt))
	case prompt >= minChunk:
		p.token = follow(p.token, x/float64(prompt))
	}
}

// spare is how much longer a round may take than one without prompts: so long that it takes
// limit, or, if limit is 0, half as long again. It is 0 if that is not known.
func (p *pace) spare(limit time.Duration) time.Duration {
	plain := time.Duration(p.plain * float64(time.Second))
	if limit > 0 && plain > 0 {
		return max(limit-plain, 0)
	}
	return plain / 2
}

// chunk is how many prompt tokens a round may have beside sequences that generate, within what
// limit leaves to spare, of which some is gone.
func (p *pace) chunk(limit, gone time.Duration) int {
	if p.plain == 0 || p.token == 0 {
		return minChunk
	}
	return max(minChunk, int((p.spare(limit)-gone).Seconds()/p.token)/minChunk*minChunk)
}

// follow moves an average towards x, which counts at most twice what is usual: a round in
// which the machine did something else is not to decide.
func follow(average, x float64) float64 {
	if average == 0 {
		return x
	}
	return average + paceRate*(min(x, 2*average)-average)
}
