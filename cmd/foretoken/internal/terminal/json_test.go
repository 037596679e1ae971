package terminal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/sample"
)

func TestReportOfCanceledAnswerIsJSON(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, q := openTiny(t, "generic"), foretoken.Request{} // which takes minutes for all
	p, err := s.prompt(t.Context(), &input{text: "Once upon a"}, newTemplateFlags())
	if err == nil {
		q, err = s.question(p, newSamplingFlags(), newLimitFlags(3000), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	q.IgnoreEnd = true
	a, err := s.ask(ctx, q, func(foretoken.Piece) error { cancel(); return nil })
	var out bytes.Buffer
	if err := newReport(s, &q, a, err).write(&out); err != nil {
		t.Fatal(err)
	}
	var r Report
	filetest.Decode(t, out.Bytes(), &r)
	if r.FinishReason != "canceled" || len(r.TokenIDs) != 1 || len(r.LogProbs) != len(r.TokenIDs) {
		t.Errorf("canceled at the first text: %s", &out)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if a, err = s.ask(ctx, q, func(foretoken.Piece) error { return nil }); a == nil || len(a.Tokens) > 0 || !errors.Is(err, console.ErrInterrupted) {
		t.Fatalf("canceled before it began: %+v, %v", a, err)
	}
	out.Reset()
	if err := newReport(s, &q, a, err).write(&out); err != nil || !json.Valid(out.Bytes()) || bytes.Contains(out.Bytes(), []byte(`"token_ids":null`)) {
		t.Errorf("canceled before it began: %s, %v", &out, err)
	}
}

// openTiny opens the embedded model until the end of the test, computed with an
// instruction set; "": the best.
func openTiny(t *testing.T, isa string) *session {
	t.Helper()
	c := &console.Console{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}
	f := load.NewFlags()
	err := f.Threads.Set("1")
	if isa != "" {
		err = errors.Join(err, f.ISA.Set(isa))
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := f.Open(t.Context(), c, console.NewNotes(false))
	if err != nil {
		t.Fatal(err)
	}
	s := &session{m}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func logprobOf(id int32, v float64) sample.LogProb {
	return sample.LogProb{ID: id, LogProb: float32(v)}
}

func TestRateWithoutMeasureIsNone(t *testing.T) {
	if r := rate(5, 0); r != nil {
		t.Errorf("5 in no time: %v", *r)
	}
	if r := rate(0, 5); r != nil {
		t.Errorf("nothing: %v", *r)
	}
	if r := rate(3, 2e9); r == nil || *r != 1.5 {
		t.Errorf("3 in 2 s: %v", r)
	}
}

func TestDescribeKeepsJSONValid(t *testing.T) {
	s := openTiny(t, "")
	var split int32 = -1
	for id := range int32(s.Vocab()) {
		if text, _ := s.Token(id); text == "\xe2" {
			split = id
		}
	}
	d := s.describeOne(logprobOf(split, math.Inf(-1)))
	if d.LogProb != nil || len(d.Bytes) != 1 || d.Bytes[0] != 0xe2 {
		t.Errorf("an impossible piece of a character: %+v", d)
	}
	if d = s.describeOne(logprobOf(1<<20, -1)); d.Token != "" || *d.LogProb != -1 {
		t.Errorf("an id without a token: %+v", d)
	}
}
