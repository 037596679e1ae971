// Package body is the part of HTTP that all protocols share: it reads the JSON of a request
// field by field, with errors that name a field by its path, and writes answers as JSON, as
// events or as lines. Fields that no protocol reads are ignored and named in a header, or refused
// where the server is strict. It knows no field of any protocol.
package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/foretoken/foretoken/internal/jinja"
	"github.com/foretoken/foretoken/internal/jsontext"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// Value is a value of a request, or the place where it could have been. Its methods never
// fail: the first thing that is wrong with a request is kept for Err, and what was asked for
// is then empty. Absent and null are the same.
type Value struct {
	path   string
	raw    []byte // a part of the body
	doc    *document
	fields map[string][]byte // of an object, once it was looked into
	known  map[string]bool   // fields that were asked for
}

// document is what the values of a request share.
type document struct {
	err     error
	objects []*Value // that were looked into
	strict  bool     // what is ignored is an error
	header  http.Header
	dropped []string // values that were left out, by path
}

// Read reads the body of a request, which must be a JSON object. What is ignored of it is named
// in the header of w.
func Read(w http.ResponseWriter, r *http.Request) *Value {
	data, err := readAll(r.Body)
	if err == nil {
		return parse(data, &document{strict: isStrict(r.Context()), header: w.Header()})
	}
	v := &Value{doc: &document{}}
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		v.doc.err = &generate.Error{
			Status: http.StatusRequestEntityTooLarge, Kind: generate.TooLarge,
			Message: fmt.Sprintf("the body is larger than %d bytes, the maximum of the server", large.Limit), Err: err,
		}
	} else {
		v.doc.err = &generate.Error{Status: http.StatusBadRequest, Kind: generate.BadRequest, Message: "the body ended early: " + err.Error(), Err: err}
	}
	return v
}

// Parse reads a request, which must be a JSON object.
func Parse(data []byte) *Value { return parse(data, &document{}) }

func parse(data []byte, doc *document) *Value {
	v := &Value{doc: doc}
	if len(bytes.TrimSpace(data)) == 0 {
		v.Fault("the body is empty, want a JSON object")
		return v
	}
	if err := json.Unmarshal(data, new(valid)); err != nil {
		at := int64(len(data))
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			at = syntax.Offset
		}
		v.Fault("the body is not JSON: %v, at byte %d", err, at)
		return v
	}
	if v.raw = bytes.TrimSpace(data); v.raw[0] != '{' {
		v.Fault("the body is %s, want a JSON object", kind(v.raw))
		v.raw = nil
		return v
	}
	v.open()
	return v
}

// Err is the first thing that was wrong with the request: a value that made no sense, or, if
// the server is strict, a field that nobody asked for. Otherwise such fields are ignored, and
// named. It is called when all was read that is to be. It is an *generate.Error or nil.
func (v *Value) Err() error {
	if v.doc.err == nil {
		v.doc.ignore()
	}
	return v.doc.err
}

// Fault says what is wrong with the value.
func (v *Value) Fault(format string, args ...any) { v.Fail(generate.Invalid(v.path, format, args...)) }

// Unsupported says that the value asks for what cannot be had.
func (v *Value) Unsupported(format string, args ...any) {
	v.Fail(generate.NotSupported(v.path, format, args...))
}

// Drop leaves out a value that asks for what cannot be had, where the answer is good without
// it: it is named like a field that is not known. If the server is strict, it is an error that
// says why.
func (v *Value) Drop(format string, args ...any) {
	if v.doc.strict {
		v.Unsupported(format, args...)
		return
	}
	name := v.path
	if v.IsText() {
		name += "=" + v.Text()
	}
	v.doc.dropped = append(v.doc.dropped, name)
}

// Fail makes err the request's error, if it has none yet.
func (v *Value) Fail(err error) {
	if v.doc.err == nil {
		v.doc.err = err
	}
}

// Path is where the value is in the request, as "messages[2].content".
func (v *Value) Path() string { return v.path }

// Raw is the value as it was written, a part of the body; nil: there is none.
func (v *Value) Raw() []byte { return v.raw }

// Absent reports whether there is no value.
func (v *Value) Absent() bool { return v.raw == nil }

// IsText reports whether the value is a string.
func (v *Value) IsText() bool { return v.raw != nil && v.raw[0] == '"' }

// IsList reports whether the value is an array.
func (v *Value) IsList() bool { return v.raw != nil && v.raw[0] == '[' }

// IsObject reports whether the value is an object.
func (v *Value) IsObject() bool { return v.raw != nil && v.raw[0] == '{' }

// Field is the field of an object; it is absent where v is.
func (v *Value) Field(name string) *Value {
	f := &Value{path: v.join(name), doc: v.doc}
	if v.raw == nil {
		return f
	}
	if v.open(); v.fields == nil {
		return f
	}
	v.known[name] = true
	f.set(v.fields[name])
	return f
}

// Ignore accepts fields that change nothing about the answer.
func (v *Value) Ignore(names ...string) {
	for _, name := range names {
		v.Field(name)
	}
}

// IgnoreRest accepts all fields of an object, which is passed on as it is.
func (v *Value) IgnoreRest() {
	if v.IsObject() {
		v.open()
	}
	for name := range v.fields {
		v.known[name] = true
	}
}

// open looks into an object.
func (v *Value) open() {
	if v.fields != nil {
		return
	}
	if !v.IsObject() {
		v.wrong("an object")
		return
	}
	v.fields, v.known = map[string][]byte{}, map[string]bool{}
	err := v.read(func(r *jsontext.Reader) error {
		return r.Object(func(key []byte) error {
			name := string(key)
			value, err := r.Value()
			v.fields[name] = value.Rest() // the last of that name
			return err
		})
	})
	if err != nil {
		v.Fault("%v", err) // the whole was read before
		return
	}
	v.doc.objects = append(v.doc.objects, v)
}

// List is the elements of an array; nil where there is none.
func (v *Value) List() []*Value {
	if v.raw == nil {
		return nil
	}
	list := []*Value{}
	err := v.read(func(r *jsontext.Reader) error {
		return r.Array(func(i int) error {
			value, err := r.Value()
			item := &Value{path: v.path + "[" + strconv.Itoa(i) + "]", doc: v.doc}
			item.set(value.Rest())
			list = append(list, item)
			return err
		})
	})
	if err != nil {
		v.wrong("an array")
		return nil
	}
	return list
}

// read reads the value, which is part of a text that was read before. What it hands out are parts
// of the body, which may hold pictures: none of it is copied.
func (v *Value) read(f func(*jsontext.Reader) error) error {
	return jsontext.Read(v.raw, jsontext.Limits{Depth: maxDepth, Replace: true}, f)
}

// maxDepth is how deep arrays and objects may nest: what encoding/json allows.
const maxDepth = 10_000

// Text is a string, or "".
func (v *Value) Text() string {
	var text string
	if v.raw != nil && json.Unmarshal(v.raw, &text) != nil {
		v.wrong("a string")
	}
	return text
}

// Bytes is a string as bytes, or nil. They may be part of the body, so they must not be changed, and
// whoever keeps them keeps all of it.
func (v *Value) Bytes() []byte {
	if !v.IsText() {
		if v.raw != nil {
			v.wrong("a string")
		}
		return nil
	}
	if text := v.raw[1 : len(v.raw)-1]; bytes.IndexByte(text, '\\') < 0 {
		return text
	}
	return []byte(v.Text())
}

// Without is an object as it was written, but for the fields of one name.
func (v *Value) Without(name string) []byte {
	text := []byte{'{'}
	_ = v.read(func(r *jsontext.Reader) error { // it was read before
		return r.Object(func(key []byte) error {
			same := string(key) == name
			quoted, _ := json.Marshal(string(key)) // strings have JSON
			value, err := r.Value()
			if same || err != nil {
				return err
			}
			if len(text) > 1 {
				text = append(text, ',')
			}
			text = append(append(append(text, quoted...), ':'), value.Rest()...)
			return nil
		})
	})
	return append(text, '}')
}

// Texts is a list of strings, none of them empty; empty where there is none.
func (v *Value) Texts() []string {
	items := v.List()
	texts := make([]string, len(items))
	for i, item := range items {
		if texts[i] = item.Required().Text(); texts[i] == "" {
			item.Fault("the string is empty")
		}
	}
	return texts
}

// OneOf is a string that must be one of a few, or "".
func (v *Value) OneOf(texts ...string) string {
	text := v.Text()
	if v.raw != nil && !slices.Contains(texts, text) {
		v.Fault("%.60q, want one of %q", text, texts)
		return ""
	}
	return text
}

// Bool is a boolean, or nil.
func (v *Value) Bool() *bool {
	if v.raw == nil {
		return nil
	}
	var b bool
	if json.Unmarshal(v.raw, &b) != nil {
		v.wrong("true or false")
		return nil
	}
	return &b
}

// True reports whether the value is true.
func (v *Value) True() bool {
	b := v.Bool()
	return b != nil && *b
}

// Variables are the fields of an object as variables of a chat template, nil if there is none.
func (v *Value) Variables() map[string]any {
	if v.Absent() {
		return nil
	}
	fields, err := jinja.DecodeJSON(v.raw)
	if err != nil || !v.IsObject() {
		v.Fault("want an object with variables of the chat template")
		return nil
	}
	v.IgnoreRest()
	return fields.Map().Any()
}

// Number is a number, or nil.
func (v *Value) Number() *float64 {
	if v.raw == nil {
		return nil
	}
	var x float64
	if json.Unmarshal(v.raw, &x) != nil {
		v.wrong("a number")
		return nil
	}
	return &x
}

// Int is a whole number from low to high, or nil. It may be written as 1e3 or 5.0, as some
// languages do.
func (v *Value) Int(low, high int64) *int64 {
	if v.raw == nil {
		return nil
	}
	n, err := strconv.ParseInt(string(v.raw), 10, 64)
	if err != nil {
		var x float64
		if json.Unmarshal(v.raw, &x) != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
			v.wrong("a whole number")
			return nil
		}
		n = int64(x)
	}
	if n < low || n > high {
		v.Fault("%d, want a number from %d to %d", n, low, high)
		return nil
	}
	return &n
}

// Required is the value, which must be there.
func (v *Value) Required() *Value {
	if v.raw == nil {
		v.Fault("this field is missing")
	}
	return v
}

func (v *Value) set(raw []byte) {
	if string(raw) != "null" {
		v.raw = raw
	}
}

// wrong says that the value is of another kind than it should be.
func (v *Value) wrong(want string) { v.Fault("%s, want %s", kind(v.raw), want) }

func (v *Value) join(name string) string {
	if v.path == "" {
		return name
	}
	return v.path + "." + name
}

// kind describes a value, for people.
func kind(raw []byte) string {
	switch {
	case len(raw) == 0 || raw[0] == 'n':
		return "nothing"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "an array"
	case raw[0] == '"':
		return fmt.Sprintf("the string %.40s", raw)
	default: // a number or a boolean
		return fmt.Sprintf("%.40s", raw)
	}
}
