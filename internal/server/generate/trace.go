package generate

// Extra are the stats and the trace that a response has under "foretoken", on request.
type Extra struct {
	*Stats
	Tokens []Traced `json:"tokens,omitempty"`
}

// Traced is a token of an answer, with the draft tokens that were accepted and rejected.
type Traced struct {
	ID       int32    `json:"id"`
	Text     string   `json:"text"`
	Draft    int      `json:"draft"`            // its position in the draft of its round, from 1; 0: it was not drafted
	Forced   bool     `json:"forced,omitempty"` // the grammar allowed no other
	Rejected []string `json:"rejected,omitempty"`
}

// Trace appends an event's token to list, if it has one.
func (r *Run) Trace(list []Traced, e Event) []Traced {
	p := e.Piece
	if e.Ended || p.Token.ID < 0 {
		return list
	}
	text, _ := r.Model.Token(p.Token.ID)
	out := Traced{ID: p.Token.ID, Text: text, Draft: p.Token.Draft, Forced: p.Token.Forced}
	for _, id := range p.Token.Rejected {
		text, _ := r.Model.Token(id)
		out.Rejected = append(out.Rejected, text)
	}
	return append(list, out)
}
