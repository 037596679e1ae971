package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// tree is the value that encoding/json makes of the same text, with numbers as json.Number.
func tree(r *Reader) (any, error) {
	kind := r.Kind()
	switch kind {
	case Object:
		m := map[string]any{}
		err := r.Object(func(key []byte) error {
			name := string(key)
			v, err := tree(r)
			m[name] = v
			return err
		})
		return m, err
	case Array:
		list := []any{}
		err := r.Array(func(i int) error {
			if i != len(list) {
				return r.Errorf("index %d of element %d", i, len(list))
			}
			v, err := tree(r)
			list = append(list, v)
			return err
		})
		return list, err
	}
	text, err := r.Scalar()
	switch kind {
	case String:
		return string(text), err
	case Number:
		return json.Number(text), err
	case Bool:
		return string(text) == "true", err
	}
	return nil, err
}

// parse is the value of a text.
func parse(data []byte, limits Limits) (v any, err error) {
	err = Read(data, limits, func(r *Reader) error {
		v, err = tree(r)
		return err
	})
	return v, err
}

// FuzzRead compares with encoding/json: the same texts are valid and have the same values, and
// skipping a value accepts the same texts as reading it. By design there are two differences,
// both only without Replace: text that is not UTF-8, and escapes of half a surrogate pair, are
// errors where encoding/json puts U+FFFD.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,-2.5e+3,0,-0,1E9,null,true,false,"x"],"b":{},"a":[]}`, " \t\r\n[ ] ", "", " ", "{", "[", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`,
		"[1,]", "[,1]", "{,}", "{1:2}", "1 2", "nul", "nulll", "truefalse", "'a'", "1e999", "]", "}", ",", `{"a" 1}`, "[1 2]", "\x00", "NaN",
		"-Infinity", "01", "-01", "-", "1.", ".5", "1e", "1e+", "+1", "0x1", "1e5.5", `"a`, `"\`, `"\u12`, `"\uZZZZ"`, `"\u+123"`, `"\x"`, "\"\t\"",
		`"\u0041\n\"\\\/\b\f\r\t"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00\ud83d"`, `"\ud83d\u0041"`, `"\ud83d\ud83d\ude00"`, `"\ud83d\n"`, `"é中\ufffd"`,
		"\"\xff\xfe\"", "\"\xe4\\u00e9\xb8\"", "[\"\xc3\",\"\xa9\"]", "\xff", "{\"\xff\":1,\"\xfe\":2}", "\xef\xbb\xbf1", "\"\x7f\u2028\"",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := slices.Clone(data)
		limits := Limits{Depth: 10_000, Replace: true} // the depth of encoding/json
		got, err := parse(data, limits)
		var want any
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		if valid := json.Valid(data); valid != (err == nil) {
			t.Fatalf("%q: error %v; valid for encoding/json: %v", data, err, valid)
		} else if valid {
			if err := d.Decode(&want); err != nil {
				t.Fatal(err)
			}
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %#v, encoding/json says %#v", data, got, want)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "at byte ") {
			t.Errorf("%q: error %q names no byte", data, err)
		}
		if e := Read(data, limits, (*Reader).Skip); (e == nil) != (err == nil) {
			t.Errorf("%q: skipped with %v, read with %v", data, e, err)
		}
		strict, e := parse(data, Limits{Depth: 10_000})
		replaced := !utf8.Valid(data) || bytes.Contains(data, []byte(`\u`)) && bytes.Contains(encoded(t, got), []byte("\ufffd"))
		if e == nil && (err != nil || !reflect.DeepEqual(strict, got)) || e != nil && err == nil && !replaced {
			t.Errorf("%q: %#v, %v; with Replace %#v, %v", data, strict, e, got, err)
		}
		if !bytes.Equal(data, before) {
			t.Error("the text was changed")
		}
	})
}

func encoded(t *testing.T, v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestObjectKeepsOrderAndRepetitions(t *testing.T) {
	var keys []string
	err := Read([]byte(`{"z": 1, "a": {}, "z": [2], "\u0061": 3}`), Limits{Depth: 2}, func(r *Reader) error {
		return r.Object(func(key []byte) error {
			keys = append(keys, string(key))
			return r.Skip()
		})
	})
	if want := []string{"z", "a", "z", "a"}; err != nil || !slices.Equal(keys, want) {
		t.Errorf("%q, %v; want %q", keys, err, want)
	}
}

func TestErrorsNameByteAndCause(t *testing.T) {
	whole := func(r *Reader) error { _, err := r.Whole(70); return err }
	for _, c := range []struct {
		text string
		read func(*Reader) error
		want string
	}{
		{"{", (*Reader).Skip, "at byte 1: unexpected EOF where a string was expected"},
		{`{"a" 1}`, (*Reader).Skip, "at byte 5: '1' where ':' was expected"},
		{`{"a":1;`, (*Reader).Skip, "at byte 6: ';' where ',' or '}' was expected"},
		{"[1 2]", (*Reader).Skip, "at byte 3: '2' where ',' or ']' was expected"},
		{"[1,]", (*Reader).Skip, "at byte 3: ']' where a value was expected"},
		{"[-Infinity]", (*Reader).Skip, "at byte 2: Infinity, which JSON does not have, where a digit was expected"},
		{"1 x", (*Reader).Skip, "at byte 2: 'x' after the end: more text follows"},
		{"[[[", (*Reader).Skip, "at byte 2: nested more than 2 deep"},
		{"\"a\xff\"", (*Reader).Skip, "at byte 2: text is not UTF-8"},
		{`"a\ud800"`, (*Reader).Skip, `at byte 2: broken \u escape in a string`},
		{strings.Repeat(" ", 101), (*Reader).Skip, "101 bytes, want at most 100"},
		{"70", whole, ""},
		{"71", whole, "at byte 1: number is too large: more than 70"},
		{"99999999999999999999", whole, "at byte 1: number is too large: more than 70"},
		{"7.0", whole, "at byte 1: fraction where a whole number was expected"},
		{"07", whole, "at byte 2: whole number begins with 0"},
		{"-7", whole, "at byte 0: '-' where a whole number was expected"},
	} {
		err := Read([]byte(c.text), Limits{Bytes: 100, Depth: 2}, c.read)
		if err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%.20q: error %v, want %s", c.text, err, c.want)
		}
	}
	if err := Read([]byte("[[["), Limits{Depth: 2}, (*Reader).Skip); !errors.Is(err, ErrDepth) {
		t.Errorf("%v is not ErrDepth", err)
	}
	if err := Read(nil, Limits{}, (*Reader).Skip); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v is not io.ErrUnexpectedEOF", err)
	}
	if err := Read([]byte("9223372036854775807"), Limits{}, func(r *Reader) error {
		_, err := r.Whole(math.MaxInt)
		return err
	}); math.MaxInt == math.MaxInt64 && err != nil {
		t.Errorf("the largest int: %v", err)
	}
}

func TestValueIsReadLater(t *testing.T) {
	var later []*Reader
	err := Read([]byte(`[ {"a": [1]} , "x", 7.5 ]`), Limits{Depth: 3}, func(r *Reader) error {
		return r.Array(func(int) error {
			v, err := r.Value()
			later = append(later, v)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`{"a": [1]}`, `"x"`, "7.5"} {
		r := later[i]
		if got := string(r.Rest()); got != want {
			t.Errorf("value %d is %s, want %s", i, got, want)
		}
		if err := r.Skip(); err != nil || r.End() != nil {
			t.Errorf("value %d: %v, %v", i, err, r.End())
		}
	}
	if err := later[0].Errorf("x"); err.Error() != "at byte 12: x" {
		t.Errorf("error %q counts from elsewhere", err)
	}
}
