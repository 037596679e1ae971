package jinja

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/filetest"
)

// referenceCases are our own templates with the reference's results.
type referenceCases struct {
	Now   time.Time
	Vars  json.RawMessage
	Cases []struct {
		Template string
		Output   *string
		Error    string
	}
}

func loadReference(t testing.TB) (referenceCases, *Map) {
	t.Helper()
	var ref referenceCases
	filetest.Decode(t, filetest.Read(t, "testdata/cases.json"), &ref)
	vars, err := DecodeJSON(ref.Vars)
	if err != nil {
		t.Fatal(err)
	}
	return ref, vars.Map()
}

// TestRenderEqualsReference renders every case, and fails if the reference
// failed.
func TestRenderEqualsReference(t *testing.T) {
	ref, vars := loadReference(t)
	if len(ref.Cases) < 600 {
		t.Fatalf("testdata has %d cases, expected more than 600", len(ref.Cases))
	}
	for _, c := range ref.Cases {
		got, err := render(c.Template, vars, Options{Now: func() time.Time { return ref.Now }})
		switch {
		case c.Output == nil && err == nil:
			t.Errorf("%q: got %q, the reference raised %s", c.Template, got, c.Error)
		case c.Output != nil && err != nil:
			t.Errorf("%q: %v, want %q", c.Template, err, *c.Output)
		case c.Output != nil && got != *c.Output:
			t.Errorf("%q:\n got %q\nwant %q", c.Template, got, *c.Output)
		}
	}
}

// TestRenderLeavesVariables renders all cases with the same variables, so none
// of them may change any.
func TestRenderLeavesVariables(t *testing.T) {
	ref, vars := loadReference(t)
	before, err := AppendJSON(nil, Dict(vars))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range ref.Cases {
		_, _ = render(c.Template, vars, Options{}) // only the variables matter here
	}
	after, err := AppendJSON(nil, Dict(vars))
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Errorf("variables changed:\nbefore %s\nafter  %s", before, after)
	}
}

func render(src string, vars *Map, o Options) (string, error) {
	t, err := Parse(src)
	if err != nil {
		return "", err
	}
	out, err := t.Render(vars, o)
	return out.Text, err
}
