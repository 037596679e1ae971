package dialogue

// Stopper ends a stream of text at the first of several stop strings. It holds
// back only a possible beginning of one.
//
// The first stop string that is complete ends the stream; of two that are
// complete with the same byte, the longer one counts. So the outcome does not
// depend on how the stream is cut into chunks.
type Stopper struct {
	stops   []stop
	held    []byte // text that may be the beginning of a stop string
	stopped bool
	by      string // the stop string that ended the stream
}

// stop is one string and how much of it the text so far ends with.
type stop struct {
	text  string
	back  []int // back[i]: the longest proper prefix of text that text[:i] ends with
	match int
}

// NewStopper returns a Stopper for the given strings. Empty ones do nothing.
func NewStopper(stops []string) *Stopper {
	s := &Stopper{}
	for _, text := range stops {
		if text == "" {
			continue
		}
		back := make([]int, len(text)+1)
		for i, k := 1, 0; i < len(text); i++ {
			for k > 0 && text[i] != text[k] {
				k = back[k]
			}
			if text[i] == text[k] {
				k++
			}
			back[i+1] = k
		}
		s.stops = append(s.stops, stop{text: text, back: back})
	}
	return s
}

// Write takes the next chunk and returns the text that is certain to come before
// any stop string. Once stopped, the stop string and everything after it is
// dropped, now and in later calls.
func (s *Stopper) Write(chunk string) (emit string, stopped bool) {
	if s.stopped {
		return "", true
	}
	for i := range len(chunk) {
		s.held = append(s.held, chunk[i])
		if n := s.advance(chunk[i]); n > 0 {
			cut := len(s.held) - n
			emit, s.by = string(s.held[:cut]), string(s.held[cut:])
			s.held, s.stopped = nil, true
			return emit, true
		}
	}
	keep := 0
	for i := range s.stops {
		keep = max(keep, s.stops[i].match)
	}
	cut := len(s.held) - keep
	emit = string(s.held[:cut])
	s.held = append(s.held[:0], s.held[cut:]...)
	return emit, false
}

// By returns the stop string that ended the stream, or "".
func (s *Stopper) By() string { return s.by }

// advance moves every stop string on by one byte and returns the length of the
// longest one that is now complete, or 0.
func (s *Stopper) advance(c byte) int {
	longest := 0
	for i := range s.stops {
		t := &s.stops[i]
		for t.match > 0 && t.text[t.match] != c {
			t.match = t.back[t.match]
		}
		if t.text[t.match] == c {
			t.match++
		}
		if t.match == len(t.text) {
			longest = max(longest, t.match)
			t.match = t.back[t.match]
		}
	}
	return longest
}

// Flush returns the held text, at the end of a stream that no stop string
// ended.
func (s *Stopper) Flush() string {
	text := string(s.held)
	s.held = nil
	return text
}
