package openai

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

var (
	service *generate.Service
	site    *httptest.Server
)

func TestMain(m *testing.M) { generatetest.Main(m, Register, &service, &site) }

// send makes a request and returns the status and the body.
func send(t *testing.T, method, path, request string) (int, string) {
	t.Helper()
	return generatetest.Send(t, method, site.URL+path, request)
}

// ask makes a request that must succeed and decodes its response.
func ask[T any](t *testing.T, path, request string) *T {
	t.Helper()
	status, text := send(t, http.MethodPost, path, request)
	v := new(T)
	if err := json.Unmarshal([]byte(text), v); err != nil || status != http.StatusOK {
		t.Fatalf("%s: status %d, %v: %s", request, status, err, text)
	}
	return v
}

// streamed is a request for a stream.
func streamed(request string) string { return strings.Replace(request, "{", `{"stream": true, `, 1) }

// sent is an event of a stream.
type sent struct{ name, data string }

// listen makes a request for a stream and returns its events.
func listen(t *testing.T, path, request string) []sent {
	t.Helper()
	status, text := send(t, http.MethodPost, path, streamed(request))
	if status != http.StatusOK {
		t.Fatalf("%s: status %d: %s", request, status, text)
	}
	if !strings.HasSuffix(text, "\n\n") {
		t.Fatalf("the stream ends with %q", text[max(0, len(text)-20):])
	}
	var list []sent
	for block := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		if strings.HasPrefix(block, ": ") {
			continue // a comment, on a slow machine
		}
		var e sent
		for line := range strings.SplitSeq(block, "\n") {
			key, value, ok := strings.Cut(line, ": ")
			switch {
			case ok && key == "event":
				e.name = value
			case ok && key == "data" && e.data == "":
				e.data = value
			default:
				t.Fatalf("a line %q", line)
			}
		}
		list = append(list, e)
	}
	return list
}

// made matches the unique parts of every response: ids, and the time.
var made = regexp.MustCompile(`"(chatcmpl-|cmpl-|resp_|msg_|rs_|fc_|ctc_|call_)[A-Z0-9]{26}"|"created(_at)?":\d+`)

// stable is the JSON of a response without the unique parts.
func stable(t *testing.T, v any) string {
	t.Helper()
	text := filetest.Encode(t, v)
	return made.ReplaceAllString(string(text), `"$1"`)
}
