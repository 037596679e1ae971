package body

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"testing"
)

// FuzzParts compares the elements and fields of any JSON text with those of encoding/json.
func FuzzParts(f *testing.F) {
	for _, text := range []string{
		`[]`, `[ ]`, `{}`, `{ }`, `[1,-2.5e3 ,"a,]\"" , [[],{}] ,{"a":[1]}, null,true]`, `{"a" : {"b":[1, 2]} ,"\u0061\\":"}" , "":[]}`, "[\n1\t,\r2 ]",
		`["\\",["\\\""]]`, `[[[[]]],{"a":{}}]`, `5`, `"a,b"`, `[`, `{"a`, `"\`, `]]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n := count(text, math.MaxInt) // of any text
		if text = bytes.TrimSpace(text); !json.Valid(text) || text[0] != '[' && text[0] != '{' {
			return
		}
		var got []json.RawMessage
		for key, value := range parts(text) {
			if key != nil {
				got = append(got, json.RawMessage(unquote(key)))
			}
			got = append(got, value)
		}
		want, top := flat(t, text)
		if len(got) != len(want) || top != count(text, 1) || all(t, text) != n {
			t.Fatalf("%q: %q, want %q; %d elements, want %d; %d values, want %d", text, got, want, count(text, 1), top, n, all(t, text))
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("%q: %q, want %q", text, got[i], want[i])
			}
		}
	})
}

// flat is the elements of an array, or the names and values of an object, and their number.
func flat(t *testing.T, text []byte) (list []json.RawMessage, n int) {
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for ; d.More(); n++ {
		if text[0] == '{' {
			name, err := d.Token()
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, json.RawMessage(name.(string)))
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		list = append(list, value)
	}
	return list, n
}

// all is the number of elements and fields in a text.
func all(t *testing.T, text []byte) (n int) {
	var objects []bool // of the arrays and objects that are open
	d := json.NewDecoder(bytes.NewReader(text))
	for key := false; ; {
		token, err := d.Token()
		if err == io.EOF { //nolint:errorlint // as it is documented
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		inObject := len(objects) > 0 && objects[len(objects)-1]
		end := token == json.Delim(']') || token == json.Delim('}')
		if inObject && !end {
			key = !key
		}
		if len(objects) > 0 && !end && !key {
			n++
		}
		switch token {
		case json.Delim('['), json.Delim('{'):
			objects = append(objects, token == json.Delim('{'))
			key = false
		case json.Delim(']'), json.Delim('}'):
			objects = objects[:len(objects)-1]
			key = false
		}
	}
}
