package spec

import "time"

// Receipt is what guessing did for one sequence.
type Receipt struct {
	Drafter  string
	Rule     Rule
	Rounds   int           // passes of the target over generated text
	Drafted  int           // guesses made
	Accepted int           // guesses that held
	At       [MaxDepth]int // guesses that held, by position
	Tried    [MaxDepth]int // guesses made, by position
	Draft    time.Duration // spent guessing
	Verify   time.Duration // spent in passes
}

// Count takes in one round.
func (r *Receipt) Count(guesses, held int) {
	r.Rounds++
	r.Drafted += guesses
	r.Accepted += held
	for j := range guesses {
		r.Tried[j]++
		if j < held {
			r.At[j]++
		}
	}
}
