package generate

// Extra is what a response carries under "foretoken", for clients that ask for it.
type Extra struct {
	*Stats
	Tokens []Traced `json:"tokens,omitempty"`
}

// Traced is a token of an answer, with what became of guesses.
type Traced struct {
	ID       int32    `json:"id"`
	Text     string   `json:"text"`
	Draft    int      `json:"draft"` // the number it had in its round, from 1; 0: it was not guessed
	Rejected []string `json:"rejected,omitempty"`
}

// Trace appends an event's token to list, if it has one.
func (t *Run) Trace(list []Traced, e Event) []Traced {
	p := e.Piece
	if e.Ended || p.Token.ID < 0 {
		return list
	}
	tok := t.Model.Tokenizer()
	text, _ := tok.Token(p.Token.ID)
	out := Traced{ID: p.Token.ID, Text: text, Draft: p.Token.Draft}
	for _, id := range p.Token.Rejected {
		text, _ := tok.Token(id)
		out.Rejected = append(out.Rejected, text)
	}
	return append(list, out)
}
