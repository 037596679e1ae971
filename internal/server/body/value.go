// Package body is the part of HTTP that all protocols share: it reads the JSON of a request
// field by field, with errors that name a field by its path, and writes answers as JSON, as
// events or as lines. Fields that no protocol reads are ignored and named in a header, or refused
// if the server is strict. It knows no field of any protocol.
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
	"unicode/utf8"

	"github.com/foretoken/foretoken/internal/jinja"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// MaxValues is the maximum number of elements and fields in the lists and objects of a request
// that are read, without ignored fields and token ids. A value that is decoded for
// templates counts twice. It bounds the memory of a body beyond its own bytes.
const MaxValues = 1 << 16

// maxVariables is the maximum number of variables that a request gives to a template.
const maxVariables = 256

// Value is a value of a request, or the place where it could be. Its methods never
// fail: the first error of a request is kept for Err, and later results
// are empty. Absent and null are the same.
type Value struct {
	doc    *document
	parent *Value  // nil: this is the body
	name   string  // of a field
	index  int     // of an element; -1: this is a field
	raw    []byte  // a part of the body, without space around it
	fields []field // of an object, once it was opened
	all    bool    // fields that were not read are accepted
}

// field is a field of an object.
type field struct {
	name, raw []byte
	known     bool // it was read
}

// document is the shared state of the values of a request.
type document struct {
	err     error
	values  int      // counted for MaxValues
	objects []*Value // looked into, whose unknown fields are not named yet
	strict  bool     // ignored fields are an error
	header  http.Header
	ignored []string // names of ignored fields, and the number of further ones
	more    int
}

// Read reads the body of a request, which must be a JSON object. Ignored fields are named
// in the header of w.
func Read(w http.ResponseWriter, r *http.Request) *Value {
	data, err := readAll(r.Body)
	if err == nil {
		return parse(data, &document{header: w.Header()})
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

// Strict sets, before any field is read, whether ignored fields are an error. It
// returns v.
func (v *Value) Strict(on bool) *Value {
	v.doc.strict = on
	return v
}

func parse(data []byte, doc *document) *Value {
	v := &Value{doc: doc}
	if len(bytes.TrimSpace(data)) == 0 {
		v.Fault("the body is empty, want a JSON object")
		return v
	}
	if !json.Valid(data) {
		err, at := json.Unmarshal(data, new(json.RawMessage)), int64(len(data))
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			at = syntax.Offset
		}
		v.Fault("the body is not JSON: %v, at byte %d", err, at)
		return v
	}
	if !utf8.Valid(data) {
		v.Fault("the body is not valid UTF-8, which JSON requires")
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

// Err is the first error of the request: an invalid value, or, if the server is strict, an
// unknown field. Otherwise unknown fields are ignored, and named. Call it after
// reading all fields. It is an *generate.Error or nil.
func (v *Value) Err() error {
	v.doc.settle(0)
	v.doc.nameIgnored()
	return v.doc.err
}

// Fault reports an error of the value.
func (v *Value) Fault(format string, args ...any) {
	v.Fail(generate.Invalid(v.Path(), format, args...))
}

// Unsupported reports that the value requests an unsupported feature.
func (v *Value) Unsupported(format string, args ...any) {
	v.Fail(generate.NotSupported(v.Path(), format, args...))
}

// Drop ignores a value that requests an unsupported feature that the answer does not
// need: it is named like an unknown field. If the server is strict, it is an error with
// the reason.
func (v *Value) Drop(format string, args ...any) {
	if v.doc.strict {
		v.Unsupported(format, args...)
		return
	}
	v.doc.ignore(func() string {
		if v.IsText() {
			return v.Path() + "=" + v.Text()
		}
		return v.Path()
	})
}

// Fail makes err the request's error, if it has none yet.
func (v *Value) Fail(err error) {
	if v.doc.err == nil {
		v.doc.err = err
	}
}

// Path is where the value is in the request, as "messages[2].content".
func (v *Value) Path() string {
	switch {
	case v.parent == nil:
		return ""
	case v.index >= 0:
		return v.parent.Path() + "[" + strconv.Itoa(v.index) + "]"
	}
	return v.parent.join(v.name)
}

// Raw is the JSON of the value, a part of the body; nil: there is none.
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
	f := &Value{doc: v.doc, parent: v, name: name, index: -1}
	f.set(v.know(name))
	return f
}

// know accepts the fields of a name and returns the last of them, or nil.
func (v *Value) know(name string) (raw []byte) {
	v.open()
	for i := range v.fields {
		if f := &v.fields[i]; string(f.name) == name {
			f.known, raw = true, f.raw
		}
	}
	return raw
}

// Ignore accepts fields that change nothing about the answer.
func (v *Value) Ignore(names ...string) {
	for _, name := range names {
		v.know(name)
	}
}

// IgnoreRest accepts all fields of an object.
func (v *Value) IgnoreRest() { v.all = true }

// open parses an object.
func (v *Value) open() {
	if v.raw == nil || v.fields != nil {
		return
	}
	if !v.IsObject() {
		v.wrong("an object")
		return
	}
	n := count(v.raw, 1)
	if !v.spend(n, 1, "fields") {
		return
	}
	v.fields = make([]field, 0, n)
	for key, raw := range parts(v.raw) {
		name := key[1 : len(key)-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name = []byte(unquote(key))
		}
		v.fields = append(v.fields, field{name: name, raw: raw})
	}
	v.doc.objects = append(v.doc.objects, v)
}

// Text is a string, or "".
func (v *Value) Text() string {
	if v.IsText() && bytes.IndexByte(v.raw, '\\') >= 0 {
		return unquote(v.raw)
	}
	return string(v.Bytes())
}

// Bytes is a string as bytes, or nil. They may be part of the body, so they must not be changed, and
// keeping them keeps the whole body in memory.
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
	return []byte(unquote(v.raw))
}

// Without is an object as it was written, but for the fields of some names.
func (v *Value) Without(names ...string) []byte {
	text := make([]byte, 1, 64)
	text[0] = '{'
	for key, raw := range parts(v.raw) {
		if slices.Contains(names, unquote(key)) {
			continue
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(append(append(text, key...), ':'), raw...)
	}
	return append(text, '}')
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
	b := string(v.raw) == "true"
	if !b && string(v.raw) != "false" {
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

// Variables are the fields of an object as variables of a chat template, or nil.
func (v *Value) Variables() map[string]any {
	if v.Absent() {
		return nil
	}
	if n := count(v.raw, 1); n > maxVariables {
		v.Fault("%d variables, want at most %d", n, maxVariables)
	}
	if !v.Admit(v.raw) {
		return nil
	}
	fields, err := jinja.DecodeJSON(v.raw)
	if err != nil || !v.IsObject() {
		v.Fault("want an object with variables of the chat template")
		return nil
	}
	return fields.Map().Any()
}

// Number is a number, or nil.
func (v *Value) Number() *float64 {
	if v.raw == nil {
		return nil
	}
	x, err := strconv.ParseFloat(string(v.raw), 64)
	if err != nil {
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
	n, ok := v.whole()
	if !ok {
		v.wrong("a whole number")
		return nil
	}
	if n < low || n > high {
		v.Fault("%d, want a number from %d to %d", n, low, high)
		return nil
	}
	return &n
}

func (v *Value) whole() (int64, bool) {
	n, err := strconv.ParseInt(string(v.raw), 10, 64)
	if err == nil {
		return n, true
	}
	x, err := strconv.ParseFloat(string(v.raw), 64)
	return int64(x), err == nil && x == math.Trunc(x) && math.Abs(x) <= 1<<53
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

// wrong reports that the value is of another kind than want.
func (v *Value) wrong(want string) { v.Fault("%s, want %s", kind(v.raw), want) }

func (v *Value) join(name string) string {
	if path := v.Path(); path != "" {
		return path + "." + name
	}
	return name
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
