package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cachedTokens sends a request whose prompt is longer than a page, and returns how much of it
// was known.
func (r *running) cachedTokens(path, key, more string) int {
	r.t.Helper()
	text := strings.Repeat("There was a cat who liked to sit in the sun. ", 20)
	request := fmt.Sprintf(`{"messages": [{"role": "user", "content": %q}], "max_tokens": 2, "seed": 1%s}`, text, more)
	switch path {
	case "/v1/completions":
		request = fmt.Sprintf(`{"prompt": %q, "max_tokens": 2, "seed": 1%s}`, text, more)
	case "/v1/responses":
		request = fmt.Sprintf(`{"input": %q, "max_output_tokens": 2, "seed": 1%s}`, text, more)
	case "/api/chat":
		request = fmt.Sprintf(`{"messages": [{"role": "user", "content": %q}], "options": {"num_predict": 2, "seed": 1}, "stream": false%s}`, text, more)
	case "/api/generate":
		request = fmt.Sprintf(`{"prompt": %q, "options": {"num_predict": 2, "seed": 1}, "stream": false%s}`, text, more)
	}
	head := []string{"X-Foretoken-Stats", "1"}
	if key != "" {
		head = append(head, "Authorization", "Bearer "+key)
	}
	a := r.do("POST", path, request, head...)
	var v struct {
		Foretoken struct {
			Timings struct {
				Cached *int `json:"cached_tokens"`
			} `json:"timings"`
		} `json:"foretoken"`
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || a.status != 200 || v.Foretoken.Timings.Cached == nil {
		r.t.Fatalf("%s: %d %s %v", path, a.status, a.body, err)
	}
	return *v.Foretoken.Timings.Cached
}

func keysOf(t *testing.T, list ...string) *Keys {
	t.Helper()
	k, err := NewKeys(list...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestTenantsDoNotSharePrefixes sends the same request with two keys, and with different salts.
func TestTenantsDoNotSharePrefixes(t *testing.T) {
	dir := t.TempDir()
	open := func(change func(*Options)) *running {
		return start(t, func(o *Options) {
			o.Models[0].Options.PrefixCache.Dir = dir
			o.Keys = keysOf(t, "anna", "bert")
			if change != nil {
				change(o)
			}
		})
	}
	const salted = `, "cache_salt": "s"`
	r := open(nil)
	for i, x := range []struct {
		key, more string
		known     bool
	}{
		{"anna", "", false},
		{"bert", "", false}, // tenants do not share
		{"anna", "", true},
		{"bert", "", true},
		{"anna", salted, false}, // salted requests do not share with unsalted ones
		{"anna", salted, true},
		{"bert", salted, false}, // the same salt of another tenant is another
		{"anna", `, "cache_salt": "t"`, false},
		{"anna", `, "cache_salt": null`, true},
	} {
		if n := r.cachedTokens(chatPath, x.key, x.more); (n > 0) != x.known {
			t.Errorf("request %d, %s %s: %d tokens known", i, x.key, x.more, n)
		}
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The next process finds the prefixes of both tenants, and none for a third.
	r = open(func(o *Options) { o.Keys = keysOf(t, "anna", "bert", "carl") })
	for key, known := range map[string]bool{"anna": true, "bert": true, "carl": false} {
		if n := r.cachedTokens(chatPath, key, ""); (n > 0) != known {
			t.Errorf("after a restart, %s: %d tokens known", key, n)
		}
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = open(func(o *Options) { o.SharePrefixes = true })
	for i, x := range []struct {
		key, more string
		known     bool
	}{
		{"anna", "", false}, // entries stored under keys are not shared afterwards
		{"bert", "", true},
		{"bert", salted, false},
		{"anna", salted, true},
	} {
		if n := r.cachedTokens(chatPath, x.key, x.more); (n > 0) != x.known {
			t.Errorf("shared, request %d, %s %s: %d tokens known", i, x.key, x.more, n)
		}
	}
	secret, err := os.Stat(filepath.Join(dir, ".salt"))
	if err != nil || secret.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", secret, err)
	}
}

// TestEveryProtocolKnowsSalts, without keys.
func TestEveryProtocolKnowsSalts(t *testing.T) {
	r := start(t, nil)
	for i, path := range []string{chatPath, "/v1/completions", "/v1/responses", "/v1/messages", "/api/chat", "/api/generate"} {
		salted, other := fmt.Sprintf(`, "cache_salt": "s%d"`, i), fmt.Sprintf(`, "cache_salt": "o%d"`, i)
		r.cachedTokens(path, "", "")
		for turn, x := range []struct {
			more  string
			known bool
		}{{"", true}, {salted, false}, {salted, true}, {other, false}} {
			if n := r.cachedTokens(path, "", x.more); (n > 0) != x.known {
				t.Errorf("%s: turn %d: %d tokens known", path, turn, n)
			}
		}
		for _, bad := range []string{`""`, `5`, `{}`} {
			if a := r.do("POST", path, `{"messages": [], "cache_salt": `+bad+`}`); a.status != 400 {
				t.Errorf("%s: cache_salt %s: %d %s", path, bad, a.status, a.body)
			}
		}
	}
}

// TestStoredResponsesBelongToTheirKey: another key gets the same error as for a response that
// never existed.
func TestStoredResponsesBelongToTheirKey(t *testing.T) {
	r := start(t, func(o *Options) { o.Keys, o.SharePrefixes = keysOf(t, "anna", "bert"), true })
	anna, bert := []string{"Authorization", "Bearer anna"}, []string{"X-Api-Key", "bert"}
	made := r.do("POST", "/v1/responses", `{"input": "Hello.", "max_output_tokens": 2}`, anna...)
	var x struct {
		ID     string
		Output []struct{ ID string }
	}
	if err := json.Unmarshal([]byte(made.body), &x); err != nil || made.status != 200 || x.ID == "" || len(x.Output) == 0 {
		t.Fatalf("%+v %v", made, err)
	}
	item := x.Output[0].ID
	unknown := strings.Repeat("0", len(x.ID))
	for _, c := range []struct{ method, path, body string }{
		{http.MethodGet, "/v1/responses/ID", ""},
		{http.MethodDelete, "/v1/responses/ID", ""},
		{http.MethodPost, "/v1/responses", `{"input": "And?", "max_output_tokens": 2, "previous_response_id": "ID"}`},
		{http.MethodGet, "/v1/responses/ID/input_items", ""},
	} {
		ask := func(id string, key []string) reply {
			return r.do(c.method, strings.ReplaceAll(c.path, "ID", id), strings.ReplaceAll(c.body, "ID", id), key...)
		}
		got, never := ask(x.ID, bert), ask(unknown, bert)
		if got.status != 404 || strings.ReplaceAll(got.body, x.ID, unknown) != never.body {
			t.Errorf("%s %s by another key: %d %s, where one that never was has %s", c.method, c.path, got.status, got.body, never.body)
		}
	}
	if a := r.do("POST", "/v1/responses", `{"input": "And?", "max_output_tokens": 2, "previous_response_id": "`+x.ID+`"}`, anna...); a.status != 200 {
		t.Errorf("continued by its own key: %+v", a)
	}
	refer := `{"input": [{"type": "item_reference", "id": "` + item + `"}, {"role": "user", "content": "And?"}], "max_output_tokens": 2}`
	if a, b := r.do("POST", "/v1/responses", refer, anna...), r.do("POST", "/v1/responses", refer, bert...); a.status != 200 || b.status != 404 {
		t.Errorf("an item by its own key: %+v, by another: %+v", a, b)
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if a := r.do(method, "/v1/responses/"+x.ID, "", anna...); a.status != 200 {
			t.Errorf("%s by its own key: %+v", method, a)
		}
	}
}

// TestTenantsDoNotSharePictures sends the same image with two keys: the prepared image of one is
// not used for the other, which could tell by the time.
func TestTenantsDoNotSharePictures(t *testing.T) {
	r := start(t, func(o *Options) { o.Keys = keysOf(t, "anna", "bert") })
	for i, x := range []struct {
		key, ask string
		looked   int64
	}{{"anna", "What do you see?", 1}, {"bert", "What do you see?", 2}, {"anna", "Is it a cat?", 2}, {"bert", "Is it a cat?", 2}} {
		request := strings.ReplaceAll(asked(t, `, "max_tokens": 4`)[chatPath][0], "What do you see?", x.ask)
		if a := r.do("POST", chatPath, request, "Authorization", "Bearer "+x.key); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if got := r.stats().Vision.Pictures; got != x.looked {
			t.Errorf("step %d: the tower has looked %d times, want %d", i, got, x.looked)
		}
	}
}
