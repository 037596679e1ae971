package batch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

const chatEndpoint = "/v1/chat/completions"

// request is a line of a file.
func request(id, body string) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":%q,"body":%s}`, id, chatEndpoint, body)
}

func TestValidateFindsWhatIsNoBatch(t *testing.T) {
	good := request("a", `{"model":"m","messages":[]}`)
	many := strings.Repeat("{}\n", MaxLines+1)
	for _, c := range []struct {
		name, file, code string
		line             int
	}{
		{"empty", "", "empty_file", 0},
		{"blank lines", "\n \r\n\n", "empty_file", 0},
		{"no JSON", "hello\nworld\n", "invalid_json_line", 1},
		{"an array", "[1,2]\n", "invalid_json_line", 1},
		{"null", "null\n", "invalid_json_line", 1},
		{"too many", many, "too_many_requests", 0},
		{"the same id twice", good + "\n\n" + good, "duplicate_custom_id", 3},
		{"another endpoint", good + "\n" + strings.Replace(request("b", `{"model":"m"}`), "/chat", "", 1), "mismatched_endpoint", 2},
		{"another model", good + "\n" + request("b", `{"model":"n"}`), "mismatched_model", 2},
		{"none beside one", good + "\n" + request("b", `{}`), "mismatched_model", 2},
	} {
		p, faults, err := validate(strings.NewReader(c.file), chatEndpoint)
		if err != nil || p != nil || len(faults) == 0 || faults[0].Code != c.code || faults[0].Line != c.line {
			t.Errorf("%s: plan %v, faults %+v, error %v; want code %s in line %d", c.name, p, faults, err, c.code, c.line)
		}
	}
}

func TestValidateKeepsMalformedLinesToThemselves(t *testing.T) {
	good := request("good", `{"messages":[]}`)
	for _, c := range []struct{ line, param, id string }{
		{"{", "", ""},
		{`{"custom_id":"x"}`, "method", "x"},
		{`{"method":"POST","url":"` + chatEndpoint + `","body":{}}`, "custom_id", ""},
		{`{"custom_id":null,"method":"POST","url":"` + chatEndpoint + `","body":{}}`, "custom_id", ""},
		{`{"custom_id":7,"method":"POST","url":"` + chatEndpoint + `","body":{}}`, "custom_id", ""},
		{`{"custom_id":"` + strings.Repeat("x", maxCustomID+1) + `","method":"POST","url":"` + chatEndpoint + `","body":{}}`, "custom_id", ""},
		{`{"custom_id":"x","method":"GET","url":"` + chatEndpoint + `","body":{}}`, "method", "x"},
		{`{"custom_id":"x","method":"POST","body":{}}`, "url", "x"},
		{request("x", `[]`), "body", "x"},
		{request("x", `null`), "body", "x"},
		{`{"custom_id":"x","method":"POST","url":"` + chatEndpoint + `"}`, "body", "x"},
		{request("x", `{"stream":true}`), "body.stream", "x"},
		{request("x", `{"stream":1}`), "body.stream", "x"},
		{request("x", `{"model":3}`), "body.model", "x"},
		{request("x", `{"previous_response_id":"resp_1"}`), "body.previous_response_id", "x"},
	} {
		p, faults, err := validate(strings.NewReader("\ufeff"+good+"\r\n"+c.line+"\n"), chatEndpoint)
		if err != nil || faults != nil || len(p.Lines) != 2 || p.Lines[0].Fault != nil {
			t.Errorf("%.80s: plan %+v, faults %+v, error %v", c.line, p, faults, err)
			continue
		}
		l := p.Lines[1]
		if l.Fault == nil || l.Fault.Param != c.param || l.Fault.Line != 2 || l.CustomID != c.id {
			t.Errorf("%.80s: line %+v, fault %+v; want param %q and id %q", c.line, l, l.Fault, c.param, c.id)
		}
	}
}

// As in any other request, null is the same as nothing.
func TestParseTakesNullForNothing(t *testing.T) {
	for _, name := range []string{"stream", "previous_response_id", "model", "seed"} {
		if _, fault := parse([]byte(request("x", fmt.Sprintf(`{%q: null}`, name)))); fault != nil {
			t.Errorf("%s: %+v", name, fault)
		}
	}
}

func TestValidateOrdersLinesByCommonPrefix(t *testing.T) {
	var file strings.Builder
	for i := range 30 { // three systems, in turn
		fmt.Fprintln(&file, request(fmt.Sprint(i), fmt.Sprintf(`{"messages":[{"role":"system","content":"%d"},{"role":"user","content":"%d"}]}`, i%3, i)))
	}
	p, faults, err := validate(strings.NewReader(file.String()), chatEndpoint)
	if err != nil || faults != nil {
		t.Fatal(faults, err)
	}
	changes := 0
	list := p.inOrder
	for i := 1; i < len(list); i++ {
		if (list[i].Number-1)%3 != (list[i-1].Number-1)%3 {
			changes++
		}
	}
	if len(list) != 30 || changes != 2 {
		t.Errorf("%d lines with %d changes of their prefix, want 30 with 2", len(list), changes)
	}
}

// ends is compared with reading a list at once; it takes no memory for skipped elements.
func TestEndsReadsOneElementAtATime(t *testing.T) {
	for n := range 20 {
		list := make([]any, n)
		for i := range list {
			list[i] = []any{nil, "a,]\"", map[string]any{"x": []int{1, 2}}, 1.5}[(i*7+n)%4]
		}
		value := filetest.Encode(t, list)
		var want []int
		at := 100
		for i, e := range list {
			text, _ := json.Marshal(e)
			if at += 1 + len(text); i < firstCuts || i >= n-lastCuts {
				want = append(want, at)
			}
		}
		if n == 0 {
			want = []int{100 + len(value)}
		}
		if got := ends(value, 100); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", value, got, want)
		}
	}
	const elements = 100_000
	value := append(bytes.Repeat([]byte("1,"), elements), '1', ']')
	value[0] = '['
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ends(append([]byte("[1,"), value[1:]...), 0)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 16*elements {
		t.Errorf("a list of %d bytes takes %d of memory", len(value), n)
	}
}

func TestRequestSeedIsItsOwnOrThatOfItsPlace(t *testing.T) {
	for body, want := range map[string]string{
		`{"seed":7}`:    `{"seed":7}`,
		`{"seed":"x"}`:  `{"seed":"x"}`, // the server refuses it
		`{"a":1}`:       fmt.Sprintf(`{"a":1,"seed":%d}`, Seed("b", "id")),
		`{"seed":null}`: fmt.Sprintf(`{"seed":%d}`, Seed("b", "id")),
		`{"seed":-1}`:   fmt.Sprintf(`{"seed":%d}`, Seed("b", "id")),
	} {
		q, fault := parse([]byte(request("id", body)))
		if fault != nil {
			t.Fatal(fault)
		}
		if got := string(q.seeded("b")); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	if Seed("b", "id") == Seed("b", "other") || Seed("b", "id") == Seed("c", "id") || Seed("b", "id")>>53 != 0 {
		t.Error("a seed is not one of its place")
	}
}

func TestCanonicalKeepsWhatDecides(t *testing.T) {
	a, _ := parse([]byte(request("x", `{ "b" : {"y":1, "x":2}, "a": 1.50 }`)))
	b, _ := parse([]byte(request("x", `{"a":1.50,"b":{"y":1,"x":2}}`)))
	c, _ := parse([]byte(request("x", `{"a":1.50,"b":{"x":2,"y":1}}`)))
	if !bytes.Equal(a.Body, b.Body) || bytes.Equal(a.Body, c.Body) {
		t.Errorf("%s, %s and %s: only the first two are the same request", a.Body, b.Body, c.Body)
	}
}

// FuzzValidate holds plans against the file that they are of.
func FuzzValidate(f *testing.F) {
	f.Add([]byte(request("a", `{"messages":[]}`) + "\n" + request("b", `{"seed":1}`)))
	f.Add([]byte("\ufeff{}\r\n\n[]"))
	f.Add([]byte(`{"custom_id":"\ud800","method":"POST","url":"/v1/chat/completions","body":{"":""}}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		p, faults, err := validate(bytes.NewReader(file), chatEndpoint)
		if err != nil || (p == nil) == (faults == nil) {
			t.Fatalf("plan %v, faults %v, error %v", p, faults, err)
		}
		if p == nil {
			return
		}
		seen := map[string]bool{}
		for i, l := range p.Lines {
			raw := file[l.Offset : l.Offset+l.Length]
			if l.Number != bytes.Count(file[:l.Offset], []byte("\n"))+1 || bytes.ContainsAny(raw, "\n") || len(raw) == 0 {
				t.Fatalf("line %d is %q", l.Number, raw)
			}
			q, fault := parse(raw)
			if (fault == nil) != (l.Fault == nil) || q.CustomID != l.CustomID || i > 0 && l.Number <= p.Lines[i-1].Number {
				t.Fatalf("%q is %+v, and was %+v", raw, q, l)
			}
			if fault != nil {
				continue
			}
			if seen[q.CustomID] {
				t.Fatalf("%q is there twice", q.CustomID)
			}
			seen[q.CustomID] = true
			again, fault := parse([]byte(request("x", string(q.seeded("b")))))
			if fault != nil || !bytes.Equal(again.Body, again.seeded("b")) {
				t.Fatalf("%s is not in canonical form", again.Body)
			}
		}
		if n := len(p.inOrder); n != len(p.Lines)-len(slices.DeleteFunc(slices.Clone(p.Lines), func(l Line) bool { return l.Fault == nil })) {
			t.Fatalf("%d lines to run", n)
		}
	})
}
