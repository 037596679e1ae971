package server

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/filetest"
)

// object is a JSON object.
type object = map[string]any

// openapiDocument is the document as programs read it.
func openapiDocument(t *testing.T) object {
	t.Helper()
	var doc object
	filetest.Decode(t, document, &doc)
	return doc
}

// decoded is the value of a JSON text.
func decoded(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// at follows names into a document; nil where one is missing.
func at(v any, names ...string) any {
	for _, name := range names {
		o, ok := v.(object)
		if !ok {
			return nil
		}
		v = o[name]
	}
	return v
}

// operations are the document's, by method and path as patterns have them.
func operations(doc object) map[string]object {
	list := map[string]object{}
	for path, item := range at(doc, "paths").(object) {
		for method, operation := range item.(object) {
			list[strings.ToUpper(method)+" "+path] = operation.(object)
		}
	}
	return list
}

// literals visits the texts in the server's sources, tests left out, with the calls that
// they are arguments of, if they are.
func literals(t *testing.T, dir string, visit func(text, method string)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		method := map[ast.Node]string{}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if f, ok := call.Fun.(*ast.SelectorExpr); ok {
					for _, a := range call.Args {
						method[a] = f.Sel.Name
					}
				}
			}
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				text, _ := strconv.Unquote(l.Value) // the parser has checked it
				visit(text, method[l])
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDocumentListsTheRoutes(t *testing.T) {
	documented := operations(openapiDocument(t))
	route := regexp.MustCompile(`^(GET|POST|PUT|PATCH|DELETE) /`)
	page := []string{"GET /{$}", "GET /assets/"} // for people
	registered := map[string]bool{}
	literals(t, ".", func(text, _ string) {
		if route.MatchString(text) && !slices.Contains(page, text) {
			registered[strings.ReplaceAll(text, "...}", "}")] = true
		}
	})
	for pattern := range registered {
		if documented[pattern] == nil {
			t.Errorf("openapi.json has no %s", pattern)
		}
	}
	folder, err := batch.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = folder.Close() })
	s, err := New(Options{Models: []Model{tiny()}, Batches: &Batches{Store: folder, Queue: batch.NewMemory()}})
	if err != nil {
		t.Fatal(err)
	}
	for pattern := range documented {
		if !registered[pattern] {
			t.Errorf("openapi.json has %s, which no source has", pattern)
		}
		method, path, _ := strings.Cut(pattern, " ")
		r, err := http.NewRequest(method, strings.ReplaceAll(path, "{id}", "a"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, found := s.mux.Handler(r); strings.ReplaceAll(found, "...}", "}") != pattern {
			t.Errorf("%s is served by %q", pattern, found)
		}
	}
}

func TestDocumentReferencesExist(t *testing.T) {
	doc := openapiDocument(t)
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`"#/components/schemas/(\w+)"`).FindAllStringSubmatch(string(document), -1) {
		if used[m[1]] = true; at(doc, "components", "schemas", m[1]) == nil {
			t.Errorf("there is no schema %s", m[1])
		}
	}
	for name := range at(doc, "components", "schemas").(object) {
		if !used[name] {
			t.Errorf("nothing uses the schema %s", name)
		}
	}
}

// Fields that are read only to be refused, or that are in objects that the document
// describes in words.
var undocumented = []string{
	"functions", "function_call", "conversation", "refusal", "allowed_tools", "mode", "output", "prompt", "tool", "definition", "phase",
	"encrypted_content", "created_by", "prompt_cache_breakpoint", "tool_name",
}

func TestDocumentHasTheFieldsOfTheDecoders(t *testing.T) {
	names := map[string]bool{}
	var collect func(v any)
	collect = func(v any) {
		switch v := v.(type) {
		case object:
			for name, x := range v {
				if name == "properties" {
					for property := range x.(object) {
						names[property] = true
					}
				}
				collect(x)
			}
		case []any:
			for _, x := range v {
				collect(x)
			}
		}
	}
	collect(openapiDocument(t)["components"])
	for _, dir := range []string{"openai", "anthropic", "ollama"} {
		literals(t, dir, func(text, method string) {
			if (method == "Field" || method == "Ignore") && !names[text] && !slices.Contains(undocumented, text) {
				t.Errorf("%s reads %q, which openapi.json does not have", dir, text)
			}
		})
	}
}

// samples are requests that have much, and are answered fast.
var samples = map[string]string{
	"POST /v1/chat/completions": `{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "foretoken": {},
		"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}`,
	"POST /v1/completions":             `{"prompt": "Hi", "max_tokens": 1, "foretoken": {}}`,
	"POST /v1/chat/completions/render": `{"messages": [{"role": "user", "content": "Hi"}]}`,
	"POST /v1/completions/render":      `{"prompt": ["Hi", "Ho"]}`,
	"POST /v1/responses":               `{"input": "Hi", "max_output_tokens": 1, "reasoning": {}, "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}}`,
	"POST /v1/responses/input_tokens":  `{"input": "Hi", "max_output_tokens": 1, "reasoning": {}, "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}}`,
	"POST /v1/messages":                sampleMessages,
	"POST /v1/messages/count_tokens":   sampleMessages,
	"POST /api/chat": `{"messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 1}, "stream": false, "foretoken": {},
		"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}`,
	"POST /api/generate": `{"prompt": "Hi", "options": {"num_predict": 1}, "stream": false}`,
	"POST /api/show":     `{"model": "tiny"}`,
	"POST /v1/batches":   `{"input_file_id": "file-none", "endpoint": "/v1/completions", "completion_window": "24h"}`,
}

// uploads need a file first: TestBatchRepliesAreAsDocumented calls them.
var uploads = []string{
	"POST /v1/files", "GET /v1/files/{id}", "DELETE /v1/files/{id}", "GET /v1/files/{id}/content",
	"POST /v1/batches", "GET /v1/batches/{id}", "POST /v1/batches/{id}/cancel",
}

const sampleMessages = `{"max_tokens": 1, "system": [{"type": "text", "text": "Hi"}], "tools": [{"name": "f", "input_schema": {"type": "object"}}],
	"tool_choice": {"type": "auto"}, "thinking": {"type": "disabled"}, "output_config": {}, "foretoken": {}, "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]},
	{"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm"}, {"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
	{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "Hi"}]}, {"type": "document", "source": {"type": "text", "data": "Hi"}}]}]}`

// variants yields a value with each of the schema's further properties set to null, one at a
// time, at all depths that the value has.
func variants(doc object, schema any, v any, yield func(path string, v any)) {
	switch v := v.(type) {
	case object:
		for name, property := range properties(doc, schema, v) {
			if inner, ok := v[name]; ok {
				variants(doc, property, inner, func(path string, x any) {
					c := maps.Clone(v)
					c[name] = x
					yield(name+"."+path, c)
				})
				continue
			}
			c := maps.Clone(v)
			c[name] = nil
			yield(name, c)
		}
	case []any:
		items := items(doc, schema)
		for i, inner := range v {
			variants(doc, items, inner, func(path string, x any) {
				c := slices.Clone(v)
				c[i] = x
				yield(fmt.Sprintf("[%d].%s", i, path), c)
			})
		}
	}
}

// resolved are the schemas that a schema stands for.
func resolved(doc object, schema any) []object {
	s, ok := schema.(object)
	if !ok {
		return nil
	}
	if ref, ok := s["$ref"].(string); ok {
		return resolved(doc, at(doc, "components", "schemas", strings.TrimPrefix(ref, "#/components/schemas/")))
	}
	if list, ok := s["anyOf"].([]any); ok {
		var all []object
		for _, x := range list {
			all = append(all, resolved(doc, x)...)
		}
		return all
	}
	return []object{s}
}

// properties are those that a schema has for objects like v.
func properties(doc object, schema, v any) object {
	for _, s := range resolved(doc, schema) {
		if p, ok := s["properties"].(object); ok && validate(doc, s, v, "") == "" {
			return p
		}
	}
	return nil
}

func items(doc object, schema any) any {
	for _, s := range resolved(doc, schema) {
		if s["items"] != nil {
			return s["items"]
		}
	}
	return nil
}

func TestDecodersKnowTheFieldsOfTheDocument(t *testing.T) {
	doc := openapiDocument(t)
	r, _ := startBatches(t, t.TempDir(), func(o *Options) { o.StrictFields = true })
	var file batch.File
	filetest.Decode(t, r.upload("{}", nil, "purpose", "batch").body, &file)
	for pattern, operation := range operations(doc) {
		schema := at(operation, "requestBody", "content", "application/json", "schema")
		if schema == nil {
			continue
		}
		text := strings.Replace(samples[pattern], "file-none", file.ID, 1)
		sample := decoded(t, text)
		_, path, _ := strings.Cut(pattern, " ")
		if got := r.do(http.MethodPost, path, text); got.status != http.StatusOK {
			t.Fatalf("%s: %d %s", pattern, got.status, got.body)
		}
		variants(doc, schema, sample, func(field string, v any) {
			data := filetest.Encode(t, v)
			if got := r.do(http.MethodPost, path, string(data)); got.status != http.StatusOK {
				t.Errorf("%s with %s as null: %d %s", pattern, field, got.status, got.body)
			}
		})
	}
}

func TestDocumentedCallsWork(t *testing.T) {
	text := filetest.Read(t, "../../docs/server-api.md")
	doc := openapiDocument(t)
	called := map[string]bool{}
	r, _ := startBatches(t, t.TempDir(), nil)
	for _, c := range calls(t, string(text)) {
		pattern := c.method + " " + c.path
		if strings.HasPrefix(c.path, "/v1/models/") {
			pattern = "GET /v1/models/{id}"
		}
		called[pattern] = true
		got := r.do(c.method, c.path, c.body, c.head...)
		if got.status != http.StatusOK {
			t.Errorf("%s %s: %d %s", pattern, c.body, got.status, got.body)
			continue
		}
		validateReply(t, doc, pattern, got)
	}
	for pattern, operation := range operations(doc) {
		if at(operation, "responses", "200") != nil && !called[pattern] && !slices.Contains(uploads, pattern) && pattern != "GET /v1/responses/{id}" && pattern != "DELETE /v1/responses/{id}" {
			t.Errorf("docs/server-api.md has no call of %s", pattern)
		}
	}
	stored := r.do(http.MethodPost, "/v1/responses", samples["POST /v1/responses"])
	var response struct{ ID string }
	filetest.Decode(t, stored.body, &response)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		validateReply(t, doc, method+" /v1/responses/{id}", r.do(method, "/v1/responses/"+response.ID, ""))
	}
}

// call is a call of curl.
type call struct {
	method, path, body string
	head               []string
}

// calls are the commands in the shell blocks of a page, as a shell would read them.
func calls(t *testing.T, page string) []call {
	t.Helper()
	var list []call
	word := regexp.MustCompile(`'([^']*)'|(\S+)`)
	page = regexp.MustCompile(`'"\$\(base64 <(\S+) \| tr -d '\\n'\)"'`).ReplaceAllStringFunc(page, func(text string) string {
		name, _, _ := strings.Cut(strings.TrimPrefix(text, `'"$(base64 <`), " ")
		data := filetest.Read(t, "../../"+name)
		return base64.StdEncoding.EncodeToString(data)
	})
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for _, line := range regexp.MustCompile(`(?m)^curl `).Split(block[1], -1)[1:] {
			c := call{method: http.MethodGet}
			words := word.FindAllStringSubmatch(line, -1)
			for i := 0; i < len(words); i++ {
				switch w := words[i][1] + words[i][2]; w {
				case "-N":
				case "-d":
					i++
					c.method, c.body = http.MethodPost, words[i][1]
				case "-H":
					i++
					name, value, _ := strings.Cut(words[i][1], ": ")
					c.head = append(c.head, name, value)
				default:
					path, ok := strings.CutPrefix(w, "http://127.0.0.1:8080")
					if !ok || c.path != "" {
						t.Fatalf("%q in: curl %s", w, line)
					}
					c.path = path
				}
			}
			list = append(list, c)
		}
	}
	return list
}

func TestErrorsAreAsDocumented(t *testing.T) {
	doc := openapiDocument(t)
	r, _ := startBatches(t, t.TempDir(), nil)
	for pattern, operation := range operations(doc) {
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.ReplaceAll(path, "{id}", "absent")
		for status, body := range map[int]string{400: `{"model": 5}`, 404: strings.Replace(samples[pattern], "{", `{"model": "absent", `, 1), 501: `{}`} {
			if at(operation, "responses", strconv.Itoa(status)) == nil {
				continue
			}
			if pattern == "POST /api/show" && status == 404 {
				body = `{"model": "absent"}`
			}
			if method == http.MethodGet && status == 400 {
				path += "?limit=0"
			}
			if got := r.do(method, path, body); got.status != status {
				t.Errorf("%s with %s: %d %s, want %d", pattern, body, got.status, got.body, status)
			} else {
				validateReply(t, doc, pattern, got)
			}
		}
	}
}

// validateReply holds a response, or each part of a stream, against the document.
func validateReply(t *testing.T, doc object, pattern string, got reply) {
	t.Helper()
	kind, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
	schema := at(operations(doc)[pattern], "responses", strconv.Itoa(got.status), "content", kind, "schema")
	if schema == nil {
		t.Errorf("%s: the document has no %s with status %d", pattern, kind, got.status)
		return
	}
	var parts []string
	switch kind {
	case "text/plain":
		return
	case "text/event-stream":
		for line := range strings.Lines(got.body) {
			if data, ok := strings.CutPrefix(line, "data: "); ok && strings.TrimSpace(data) != "[DONE]" {
				parts = append(parts, data)
			}
		}
	case "application/x-ndjson":
		parts = slices.Collect(strings.Lines(got.body))
	default:
		parts = []string{got.body}
	}
	if len(parts) == 0 {
		t.Errorf("%s: an empty response", pattern)
	}
	for _, part := range parts {
		var v any
		if err := json.Unmarshal([]byte(part), &v); err != nil {
			t.Errorf("%s: %v: %s", pattern, err, part)
		} else if fault := validate(doc, schema, v, ""); fault != "" {
			t.Errorf("%s: %s in %s", pattern, fault, part)
		}
	}
}
