package turn

// Extra is what a response carries under "foretoken", for clients that ask for it.
type Extra struct {
	*Stats
	Tokens []Traced `json:"tokens,omitempty"`
}

// Traced is a token of an answer, with what became of guesses.
type Traced struct {
	ID       int32    `json:"id"`
	Text     string   `json:"text"`
	Draft    int      `json:"guess"` // the number it had in its round, from 1; 0: it was not guessed
	Rejected []string `json:"refused,omitempty"`
}

// Trace appends an event's token to list, if it has one.
func (t *Turn) Trace(list []Traced, e Event) []Traced {
	p := e.Piece
	if e.Ended || p.Token.ID < 0 {
		return list
	}
	text, _ := t.Model.Token(p.Token.ID)
	out := Traced{ID: p.Token.ID, Text: text, Draft: p.Token.Draft}
	for _, id := range p.Token.Rejected {
		text, _ := t.Model.Token(id)
		out.Rejected = append(out.Rejected, text)
	}
	return append(list, out)
}
