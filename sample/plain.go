package sample

// A Plain is a draw that looks at a row of logits and nothing else: no filter, no bias, no
// penalty, no constraint. A device that has the row can make it.
type Plain struct {
	Temperature float64 // 0: the most likely id
	Noise       uint64  // of the position (see RandomVersion: stream)
	Vocab       int     // ids from there on do not count; 0: all do
}

// Plain is the draw of the token that follows ahead more tokens after the text, which Draw makes
// of the Dist there. ok is false if it is not a plain one.
func (s *Sampler) Plain(ahead int) (p Plain, ok bool) {
	o := &s.options
	whole := o.TopK == 0 && (o.TopP == 0 || o.TopP == 1) && o.MinP == 0 && o.XTCProbability == 0
	p = Plain{Temperature: o.Temperature, Noise: stream(o.Seed, useToken, s.position+ahead), Vocab: o.Vocab}
	return p, (whole || o.Temperature == 0) && len(s.biases) == 0 && s.text == nil && s.constraint == nil
}

// A Drawer makes plain draws. The zero value is one; one goroutine uses it at a time.
type Drawer struct{ s Sampler }

// Draw is the id that p chooses from a row of logits, -1 if the row has no number.
func (w *Drawer) Draw(p Plain, logits []float32) int32 {
	w.s.options = Options{Temperature: p.Temperature, Vocab: p.Vocab}
	d := w.s.Dist(logits, nil).open()
	defer w.s.release()
	switch d.len() {
	case 0:
		return -1
	case 1:
		return d.tokenAt(0)
	}
	return d.gumbelMax(p.Noise)
}
