package grammar

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// steps is a context that ends after left calls of Err, to cancel at an exact step.
type steps struct {
	context.Context
	left int
}

func (s *steps) Err() error {
	if s.left--; s.left < 0 {
		return context.Canceled
	}
	return nil
}

// costly are sources that take as long as any may, or longer than is allowed.
func costly() map[string]Source {
	list := func(first int) string { // of values that are in no other list
		values := make([]string, 40_000)
		for i := range values {
			values[i] = fmt.Sprintf(`"%d"`, first+i)
		}
		return `{"enum": [` + strings.Join(values, ",") + `]}`
	}
	var props strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&props, `"p%d": {"type": "string", "pattern": "^(a|b)*a(a|b){9}$"},`, i)
	}
	return map[string]Source{
		"subsets":     Regexp(`(?:a|b)*a(?:a|b){13}`),
		"repetitions": Regexp(`(?:a{1,30}b?){1,30}`),
		"enums":       Schema([]byte(`{"oneOf": [` + list(0) + `,` + list(1_000_000) + `]}`)),
		"patterns":    Schema([]byte(`{"type": "object", "properties": {` + props.String() + `"q": {}}}`)),
		"references":  Schema([]byte(`{"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"allOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}]}]}, "b": {"anyOf": [{"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}}, {"type": "array", "items": {"$ref": "#/$defs/a"}}]}}, "$ref": "#/$defs/a"}`)),
	}
}

// TestCompileEndsWithItsContext cancels at several moments of several compilations.
func TestCompileEndsWithItsContext(t *testing.T) {
	v := bytesVocab(t)
	for name, s := range costly() {
		asked := &steps{t.Context(), 1 << 40}
		_, full := CompileContext(asked, s, v)
		most := 1<<40 - asked.left
		if most < 3 {
			t.Errorf("%s: asked whether it is still wanted %d times only", name, most)
		}
		for _, at := range []int{0, 1, most / 2, most - 1} {
			ctx := &steps{t.Context(), at}
			if _, err := CompileContext(ctx, s, v); !errors.Is(err, context.Canceled) {
				t.Errorf("%s, canceled at question %d of %d: %v", name, at, most, err)
			}
			if ctx.left < -4 { // error paths may check once more
				t.Errorf("%s: went on for %d questions after it was canceled", name, -ctx.left)
			}
		}
		if full != nil && !errors.Is(full, errLarge) && !strings.Contains(full.Error(), "expands to more") {
			t.Errorf("%s: %v", name, full)
		}
	}
}

// TestCompileIsBounded checks that comparing long lists counts as work.
func TestCompileIsBounded(t *testing.T) {
	if _, err := Compile(costly()["enums"], bytesVocab(t)); !errors.Is(err, errLarge) || !strings.Contains(err.Error(), "shorten lists") {
		t.Errorf("two lists of 40,000 values, told apart value by value: %v", err)
	}
}

// TestApartOfNoSchemas cancels a compilation at each step, also while it compares members
// without a schema.
func TestApartOfNoSchemas(t *testing.T) {
	alternative := func(kind string) string {
		return `{"type": "object", "required": ["any", "kind"], "properties": {"any": {}, "kind": {"const": "` + kind + `"}}}`
	}
	s := Schema([]byte(`{"oneOf": [` + alternative("a") + `,` + alternative("b") + `]}`))
	asked := &steps{t.Context(), 1 << 40}
	if _, err := CompileContext(asked, s, bytesVocab(t)); err != nil {
		t.Fatal(err)
	}
	for at := range 1<<40 - asked.left {
		if _, err := CompileContext(&steps{t.Context(), at}, s, bytesVocab(t)); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled at question %d: %v", at, err)
		}
	}
}

// TestFactsAreBounded has the facts of all grammars of a vocabulary reach their limit: nothing
// more is remembered, masks are the same, and there is space again when a grammar is gone.
func TestFactsAreBounded(t *testing.T) {
	v := bytesVocab(t)
	compile := func() *Grammar {
		g, err := Compile(Object(), v)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	full := compile()
	_ = full.Matcher().Allowed(nil)
	one := full.Bytes() - full.fixed
	if one <= 0 || full.fixed <= 0 {
		t.Fatalf("a grammar in use has %d bytes of facts and %d of its own", one, full.fixed)
	}
	if v.learned.Load() != one {
		t.Fatalf("%d bytes count for the vocabulary, want %d", v.learned.Load(), one)
	}
	hoard := compile()
	for hoard.learned.add(1 << 20) { // its own limit
	}
	if n := hoard.learned.bytes.Load(); n > maxFacts || n <= maxFacts-1<<20 {
		t.Errorf("a grammar remembers %d bytes, at most %d", n, maxFacts)
	}
	others := []*Grammar{hoard}
	for v.learned.Load() <= maxAllFacts-1<<20 {
		g := compile()
		for g.learned.add(1 << 20) {
		}
		others = append(others, g)
	}
	for full.learned.add(1) { // the last byte
	}
	g := compile()
	want := fmt.Sprint(full.Matcher().Allowed(nil))
	if got := fmt.Sprint(g.Matcher().Allowed(nil)); got != want {
		t.Error("another mask when nothing can be remembered")
	}
	if n := g.learned.bytes.Load(); n != 0 || v.learned.Load() != maxAllFacts {
		t.Errorf("%d bytes more are remembered, %d in all", n, v.learned.Load())
	}
	runtime.KeepAlive(others)
	others, hoard = nil, nil
	for v.learned.Load() > maxAllFacts/2 { // until the collector has seen that they are gone
		runtime.GC()
		runtime.Gosched()
	}
	if _ = g.Matcher().Allowed(nil); g.learned.bytes.Load() == 0 {
		t.Error("nothing is remembered although there is space")
	}
	runtime.KeepAlive(full)
}
