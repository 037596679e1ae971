package batch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

// Limits of a file of requests.
const (
	MaxLines = 50_000
	MaxFile  = 200 << 20 // bytes
	MaxLine  = 64 << 20  // bytes, of one request

	MaxFaults = 100 // that are reported of a file

	maxCustomID = 512
)

// Endpoints are the supported endpoints of a batch.
var Endpoints = []string{"/v1/chat/completions", "/v1/completions", "/v1/responses"}

// Fault is an error of a file or of a line.
type Fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Param   string `json:"param,omitempty"`
	Line    int    `json:"line,omitempty"` // from 1; 0: all of the file
}

// Request is a line that is a request.
type Request struct {
	CustomID string
	Endpoint string
	Model    string // as in the body; "": none
	Body     []byte // in canonical form
}

// Line is the position of a request in its file, or its fault.
type Line struct {
	Number         int // from 1
	Offset, Length int64
	CustomID       string // "": none
	Fault          *Fault // nil: it can be run
	Key            string // of its result, once the model is known

	order    []byte   // lines with a common prefix have neighboring ones; nil once they are in order
	prefixes []uint64 // of its prompt, which other lines may share, the shortest first
}

// Plan is a file that is a batch.
type Plan struct {
	Lines []Line // in the order of the file
	Model string // of all lines; "": none

	inOrder []*Line // runnable lines, in the order to run them
}

// EndpointOf is the endpoint of the first line of a file that names one, with the number of the
// line; "": no line does. An error is one of reading.
func EndpointOf(r io.Reader) (endpoint string, line int, err error) {
	err = scan(r, func(number int, _, _ int64, raw []byte) {
		if endpoint == "" {
			q, _ := parse(raw) // Validate reports its fault
			endpoint, line = q.Endpoint, number
		}
	})
	if errors.Is(err, errTooMany) || errors.Is(err, errTooLong) {
		err = nil // likewise
	}
	return endpoint, line, err
}

// validate reads a file of requests to an endpoint. A line that cannot be run has a fault and the
// others run; faults say why the file is not a batch. An error is one of reading.
func validate(r io.Reader, endpoint string) (*Plan, []Fault, error) {
	v := &validation{endpoint: endpoint, seen: map[string]int{}}
	err := scan(r, v.line)
	switch {
	case errors.Is(err, errTooMany):
		v.fault(0, "too_many_requests", "", "the file has more than %d lines, the maximum of a batch: split it into several files", MaxLines)
	case errors.Is(err, errTooLong):
		v.fault(0, "file_too_large", "", "the file has more than %d bytes, the maximum of a batch: split it into several files", MaxFile)
	case err != nil:
		return nil, nil, err
	case len(v.plan.Lines) == 0:
		v.fault(0, "empty_file", "", "the file has no lines")
	case len(v.faults) == 0 && v.good == 0:
		first := v.plan.Lines[0].Fault
		v.fault(first.Line, "invalid_json_line", first.Param, "no line of the file is a valid request; the first line: %s", first.Message)
	}
	if len(v.faults) > 0 {
		return nil, v.faults, nil
	}
	v.plan.arrange()
	return &v.plan, nil, nil
}

// validation is a file that is being read.
type validation struct {
	endpoint string
	plan     Plan
	faults   []Fault
	seen     map[string]int // custom ids, and their lines
	good     int            // lines that can be run
}

func (v *validation) fault(line int, code, param, format string, args ...any) {
	if len(v.faults) < MaxFaults {
		v.faults = append(v.faults, Fault{Code: code, Message: fmt.Sprintf(format, args...), Param: param, Line: line})
	}
}

// line adds a line; raw is nil if it is too long.
func (v *validation) line(number int, offset, length int64, raw []byte) {
	q, fault := parse(raw)
	l := Line{Number: number, Offset: offset, Length: length, CustomID: q.CustomID, Fault: fault}
	if fault != nil {
		fault.Line = number
	}
	if first, ok := v.seen[q.CustomID]; ok && q.CustomID != "" {
		v.fault(number, "duplicate_custom_id", "custom_id", "custom_id %.80q is also used by line %d: it must be unique", q.CustomID, first)
	} else {
		v.seen[q.CustomID] = number
	}
	if q.Endpoint != "" && q.Endpoint != v.endpoint {
		v.fault(number, "mismatched_endpoint", "url", "the line is for %.80q, but the batch is for %s: a batch has one endpoint", q.Endpoint, v.endpoint)
	}
	if fault == nil {
		if v.good == 0 {
			v.plan.Model = q.Model
		} else if q.Model != v.plan.Model {
			v.fault(number, "mismatched_model", "body.model", "the line is for the model %.80q, but earlier lines are for %.80q: a batch has one model", q.Model, v.plan.Model)
		}
		v.good++
		l.order, l.prefixes = order(q.Body)
	}
	v.plan.Lines = append(v.plan.Lines, l)
}

// Errors of scan.
var (
	errTooMany = errors.New("too many lines")
	errTooLong = errors.New("too many bytes")
)

// scan calls f with every line that is not blank, without its end. raw is valid until f
// returns, and nil for a line longer than MaxLine.
func scan(r io.Reader, f func(number int, offset, length int64, raw []byte)) error {
	b := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	var at, length int64
	for number, lines := 1, 0; ; number++ {
		line, length = line[:0], 0
		start := at
		var err error
		for more := true; more; {
			var piece []byte
			piece, err = b.ReadSlice('\n')
			more = errors.Is(err, bufio.ErrBufferFull)
			if length += int64(len(piece)); length <= MaxLine+2 {
				line = append(line, piece...)
			}
			if at += int64(len(piece)); at > MaxFile {
				return errTooLong
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if raw, skipped := trim(line, number == 1); len(raw) > 0 {
			if lines++; lines > MaxLines {
				return errTooMany
			}
			if size := int64(len(raw)); length > MaxLine {
				f(number, start, length, nil)
			} else {
				f(number, start+int64(skipped), size, raw)
			}
		}
		if err != nil {
			return nil
		}
	}
}

// trim removes white space, and a byte order mark at the beginning of a file.
func trim(line []byte, first bool) (raw []byte, skipped int) {
	raw = line
	if first {
		raw = bytes.TrimPrefix(raw, []byte("\ufeff"))
	}
	raw = bytes.TrimLeft(raw, " \t\r\n")
	return bytes.TrimRight(raw, " \t\r\n"), len(line) - len(raw)
}

// parse reads a line. With a fault it returns the part that could be read.
func parse(raw []byte) (q Request, fault *Fault) {
	bad := func(param, format string, args ...any) (Request, *Fault) {
		return q, &Fault{Code: "invalid_request", Param: param, Message: fmt.Sprintf(format, args...)}
	}
	if raw == nil {
		return bad("", "the line is longer than %d bytes", MaxLine)
	}
	fields, err := object(raw)
	if err != nil {
		return q, &Fault{Code: "invalid_json_line", Message: "the line is not a JSON object" + detail(err)}
	}
	text := func(name string) (s string, ok bool) {
		value, there := fields[name]
		return s, there && json.Unmarshal(value, &s) == nil && string(value) != "null"
	}
	id, ok := text("custom_id")
	if ok && len(id) <= maxCustomID {
		q.CustomID = id
	}
	q.Endpoint, _ = text("url")
	method, _ := text("method")
	switch {
	case !ok || id == "":
		return bad("custom_id", "want a string that is unique in the file")
	case len(id) > maxCustomID || !utf8.ValidString(id):
		return bad("custom_id", "want at most %d bytes", maxCustomID)
	case method != "POST":
		return bad("method", "%.20q, want POST", method)
	case q.Endpoint == "":
		return bad("url", "want the endpoint, such as %s", Endpoints[0])
	}
	body, err := object(fields["body"])
	if errors.Is(err, errFields) {
		return bad("body", "%v", err)
	}
	if err != nil {
		return bad("body", "want an object, the request")
	}
	if stream, ok := body["stream"]; ok && !slices.Contains([]string{"false", "null"}, string(stream)) {
		return bad("body.stream", "streaming is not supported in a batch: leave it out")
	}
	if id, ok := body["previous_response_id"]; ok && string(id) != "null" {
		return bad("body.previous_response_id", "stored responses are not supported in a batch: send the conversation as input")
	}
	if name, ok := body["model"]; ok {
		if err := json.Unmarshal(name, &q.Model); err != nil {
			return bad("body.model", "want the name of a model")
		}
	}
	q.Body = canonical(body)
	return q, nil
}

// maxFields is the maximum number of fields of a line, and of its request.
const maxFields = 1 << 10

var errFields = fmt.Errorf("more than %d fields", maxFields)

// object is the fields of an object.
func object(raw []byte) (map[string]json.RawMessage, error) {
	if !json.Valid(raw) {
		return nil, json.Unmarshal(raw, new(json.RawMessage))
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, _ := d.Token(); t != json.Delim('{') { // valid JSON gives no errors
		return nil, errors.New("want an object")
	}
	fields := map[string]json.RawMessage{}
	for d.More() {
		name, _ := d.Token()
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if fields[name.(string)] = value; len(fields) > maxFields {
			return nil, errFields
		}
	}
	return fields, nil
}

// detail is the reason of an error of JSON.
func detail(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// canonical is the JSON of an object with sorted members and without white space. The contents
// of members are unchanged: the order of a schema's properties affects the answer.
func canonical(fields map[string]json.RawMessage) []byte {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		quoted, _ := json.Marshal(name) // texts have no errors
		b.Write(quoted)
		b.WriteByte(':')
		_ = json.Compact(&b, fields[name]) // it was parsed
	}
	b.WriteByte('}')
	return b.Bytes()
}
