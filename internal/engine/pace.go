package engine

import "time"

// pace knows how long rounds take, to say how much of a prompt may be prefilled in one while
// other sequences wait for their next token.
type pace struct {
	plain float64 // seconds of a round without prompts; 0: not known
	rest  float64 // those of them that were not the pass
	token float64 // seconds that a token of a prompt adds; 0: not known
	last  time.Duration

	offline bool    // plain is of rounds of offline sequences
	other   float64 // what plain is of rounds of the others
}

const (
	paceRate = 0.1
	// minChunk is prefilled in any case, for a prompt must end.
	minChunk = 4
)

// turn says whose the next round is. Rounds of a batch say nothing about those of a few streams.
func (p *pace) turn(offline bool) {
	if p.offline != offline {
		p.offline, p.plain, p.other = offline, p.other, p.plain
	}
}

// round takes in a round: its pass, which is a part of what it took, the number of prompt tokens
// that were prefilled, how many of them came on top of other rows or of one row, and the seconds of
// a pass over those, 0 if that is not known.
func (p *pace) round(took, pass time.Duration, prompt, more int, without float64) {
	x := took.Seconds()
	p.last = took
	switch {
	case prompt == 0:
		p.plain, p.rest = follow(p.plain, x), follow(p.rest, (took-pass).Seconds())
	case without > 0 && more > 0:
		p.token = follow(p.token, max(x-p.rest-without, 0.02*x)/float64(more))
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
