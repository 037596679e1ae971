package batch

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// Result is the result of a line. Its body is a function of model, request and seed, and of the Call's
// Key and Created.
type Result struct {
	Status int             `json:"status,omitempty"` // of HTTP; 0: there was no answer
	Body   json.RawMessage `json:"body,omitempty"`
	Error  *Fault          `json:"error,omitempty"` // why it could not
	Cached int             `json:"cached"`          // tokens of the prompt that were in the cache
}

// OK reports whether a result is an answer.
func (r *Result) OK() bool { return r.Error == nil && r.Status >= 200 && r.Status < 300 }

// hash is a hash of parts with their lengths, so that no two lists of parts have the same input.
func hash(parts ...[]byte) [sha256.Size]byte {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		_, _ = h.Write(n[:]) // a hash does not fail
		_, _ = h.Write(p)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// name is a short identifier made of texts.
func name(prefix string, parts ...string) string {
	list := [][]byte{[]byte(prefix)}
	for _, p := range parts {
		list = append(list, []byte(p))
	}
	sum := hash(list...)
	return prefix + base32.StdEncoding.EncodeToString(sum[:])[:26]
}

// Seed is the seed of a line without one: a function of its batch and its custom id. It has 53 bits,
// which every JSON parser supports.
func Seed(batch, customID string) uint64 {
	sum := hash([]byte("seed"), []byte(batch), []byte(customID))
	return binary.LittleEndian.Uint64(sum[:8]) >> 11
}

// seeded is the request with a seed: its own, or that of its place.
func (q *Request) seeded(batch string) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(q.Body, &fields) != nil {
		return q.Body // it was parsed
	}
	switch string(fields["seed"]) {
	case "", "null", "-1":
		fields["seed"] = strconv.AppendUint(nil, Seed(batch, q.CustomID), 10)
	}
	return canonical(fields)
}

// resultKey is the key of the result of a request: a hash of all its inputs. Results are separate for
// each batch, so that response times do not reveal to a tenant what another has asked, and
// they can be removed with the batch.
func resultKey(batch, model, endpoint string, request []byte) string {
	sum := hash([]byte(model), []byte(endpoint), request)
	return "results/" + batch + "/" + hex.EncodeToString(sum[:])
}

// same reports whether two results say the same: status, answers and the counts of tokens.
func (r *Result) same(other *Result) bool {
	if r.Status != other.Status || (r.Error == nil) != (other.Error == nil) {
		return false
	}
	mine, err := essence(r.Body)
	if err != nil {
		return false
	}
	others, err := essence(other.Body)
	return err == nil && bytes.Equal(mine, others)
}

// essence is the part of a response that a divergence is one of.
func essence(body []byte) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	for name := range fields {
		if !slices.Contains([]string{"choices", "output", "usage", "error"}, name) {
			delete(fields, name)
		}
	}
	return canonical(fields), nil
}

// outputLine is a line of an output or error file.
type outputLine struct {
	ID       string        `json:"id"`
	CustomID *string       `json:"custom_id"`
	Response *lineResponse `json:"response"`
	Error    *lineError    `json:"error"`
}

type lineResponse struct {
	Status    int             `json:"status_code"`
	RequestID string          `json:"request_id"`
	Body      json.RawMessage `json:"body"`
}

type lineError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// output is the line of a file with a result, and a line feed.
func (l *Line) output(batch string, r *Result) []byte {
	at := strconv.Itoa(l.Number)
	o := outputLine{ID: name("batch_req_", batch, at)}
	if l.CustomID != "" {
		o.CustomID = &l.CustomID
	}
	switch {
	case r.Error != nil:
		message := r.Error.Message
		if r.Error.Param != "" {
			message = r.Error.Param + ": " + message
		}
		if r.Error.Line > 0 {
			message = fmt.Sprintf("line %d: %s", r.Error.Line, message)
		}
		o.Error = &lineError{r.Error.Code, message}
	default:
		o.Response = &lineResponse{r.Status, name("req_", batch, at), r.Body}
	}
	data, _ := encode(o) // parsed JSON can be encoded
	return data
}

// encode is the JSON of a result or of a line of output, and a line feed. Responses in it are
// unchanged, byte for byte.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}
