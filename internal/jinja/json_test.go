package jinja

import (
	"strings"
	"testing"
)

func TestDecodeJSONKeepsOrderAndKinds(t *testing.T) {
	const text = `{"z": 1, "a": [1.0, -0, 1e2, null, true, "é\n\u0041"], "m": {"y": {}, "b": []}, "n": 123456789012345678901234567890}`
	v, err := DecodeJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got, err := AppendJSON(nil, v)
	want := `{"z": 1, "a": [1.0, 0, 100.0, null, true, "é\nA"], "m": {"y": {}, "b": []}, "n": 123456789012345678901234567890}`
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
}

func TestDecodeJSONTakesLastOfEqualKeys(t *testing.T) {
	v, err := DecodeJSON([]byte(`{"a": 1, "b": 2, "a": 3}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := AppendJSON(nil, v); string(got) != `{"a": 3, "b": 2}` {
		t.Errorf("got %s", got)
	}
}

func TestDecodeJSONRefuses(t *testing.T) {
	for _, text := range []string{
		"", " ", "{", "[", "[1", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, "[1,]", "{1:2}", "1 2", "nul", "'a'", "1e999",
		"]", "}", ",", `{"a" 1}`, "[1 2]", "\x00", `"a`, "NaN",
		strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 100_000), strings.Repeat("[", 201) + strings.Repeat("]", 201),
	} {
		if v, err := DecodeJSON([]byte(text)); err == nil {
			t.Errorf("%.20q: got %v, want an error", text, v)
		}
	}
	if _, err := DecodeJSON([]byte(strings.Repeat("[", 200) + strings.Repeat("]", 200))); err != nil {
		t.Errorf("200 levels: %v", err)
	}
}

func TestMapFindsManyKeys(t *testing.T) {
	m := &Map{}
	for i := range 1000 {
		m.Set(strings.Repeat("k", i%37)+string(rune('a'+i%26))+string(rune(0x4e00+i)), intValue(int64(i)))
	}
	if m.Len() != 1000 {
		t.Fatalf("%d keys, want 1000", m.Len())
	}
	i := int64(0)
	for key, v := range m.All() {
		if n, _ := v.integer(); n != i {
			t.Fatalf("key %d has value %d", i, n)
		}
		if got, ok := m.Get(key); !ok || got.num != v.num {
			t.Fatalf("Get(%q) = %v, %v", key, got, ok)
		}
		i++
	}
	if _, ok := m.Get("absent"); ok {
		t.Error("found an absent key")
	}
	var none *Map
	if _, ok := none.Get("a"); ok || none.Len() != 0 {
		t.Error("a nil map has keys")
	}
}

func TestAppendJSONRefuses(t *testing.T) {
	if _, err := AppendJSON(nil, Value{}); err == nil {
		t.Error("undefined: no error")
	}
	v := List(nil)
	for range 2000 {
		v = List([]Value{v})
	}
	if _, err := AppendJSON(nil, v); err == nil {
		t.Error("2000 levels: no error")
	}
}

func TestValueTellsWhatItIs(t *testing.T) {
	if s, ok := String("a").Text(); s != "a" || !ok {
		t.Error("Text of a string")
	}
	if _, ok := intValue(1).Text(); ok {
		t.Error("Text of an integer")
	}
	if intValue(1).Map() != nil || intValue(1).Items() != nil {
		t.Error("an integer has elements")
	}
	if n := len(List([]Value{None()}).Items()); n != 1 {
		t.Errorf("a list of one has %d elements", n)
	}
	if k := (Value{}).Kind(); k != KindUndefined {
		t.Errorf("the zero value is of kind %d", k)
	}
}

func FuzzDecodeJSON(f *testing.F) {
	for _, s := range []string{`{"a": [1, 2.5, null]}`, `"\ud800"`, "[[", `{"a":1e999}`, "-0", `{"":{"":""}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := DecodeJSON([]byte(s))
		if err != nil {
			return
		}
		once, err := AppendJSON(nil, v)
		if err != nil {
			t.Fatalf("decoded but not encoded: %v", err)
		}
		again, err := DecodeJSON(once)
		if err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if twice, _ := AppendJSON(nil, again); string(twice) != string(once) {
			t.Errorf("%s became %s", once, twice)
		}
	})
}
