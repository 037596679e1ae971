package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/filetest"
)

// startBatches serves the embedded model with batches in a folder, at a time that tests set.
func startBatches(t *testing.T, dir string, change func(*Options)) (*running, *atomic.Int64) {
	t.Helper()
	folder, err := batch.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	var ahead atomic.Int64
	r := start(t, func(o *Options) {
		o.Batches = &Batches{Store: folder, Queue: batch.NewMemory(), Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}
		if change != nil {
			change(o)
		}
	})
	t.Cleanup(func() { _ = folder.Close() })
	return r, &ahead
}

// upload sends a file; fields are pairs of names and values.
func (r *running) upload(content string, head []string, fields ...string) reply {
	r.t.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	part, err := m.CreateFormFile("file", "in.jsonl")
	if err == nil {
		_, err = part.Write([]byte(content))
	}
	for i := 0; i < len(fields) && err == nil; i += 2 {
		err = m.WriteField(fields[i], fields[i+1])
	}
	if err != nil || m.Close() != nil {
		r.t.Fatal(err)
	}
	return r.do("POST", "/v1/files", b.String(), append([]string{"Content-Type", m.FormDataContentType()}, head...)...)
}

// line is a request of a file.
func line(id, body string) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":%s}`+"\n", id, body)
}

// begin uploads a file and begins a batch.
func (r *running) begin(content string, head ...string) (b batch.Batch) {
	r.t.Helper()
	var f batch.File
	if err := json.Unmarshal([]byte(r.upload(content, head, "purpose", "batch").body), &f); err != nil {
		r.t.Fatal(err)
	}
	a := r.do("POST", "/v1/batches", fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h","metadata":{"a":"b"}}`, f.ID), head...)
	if err := json.Unmarshal([]byte(a.body), &b); err != nil || a.status != 200 || b.Metadata["a"] != "b" {
		r.t.Fatal(err, a)
	}
	return b
}

// wait waits for a state of a batch.
func (r *running) wait(id string, status batch.Status, head ...string) (b batch.Batch) {
	r.t.Helper()
	until(r.t, id+" is "+string(status), func() bool {
		b = batch.Batch{}
		if err := json.Unmarshal([]byte(r.do("GET", "/v1/batches/"+id, "", head...).body), &b); err != nil {
			r.t.Fatal(err)
		}
		return b.Status == status
	})
	return b
}

func TestBatchAnswersAsTheEndpointDoes(t *testing.T) {
	dir := t.TempDir()
	r, _ := startBatches(t, dir, nil)
	ask := func(text, more string) string {
		return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"max_tokens":8,"ignore_eos":true%s}`, text, more) // or the seed decides how many
	}
	b := r.begin(line("seeded", ask("Hello.", `,"seed":1`)) + line("free", ask("Hello.", "")) + line("wrong", ask("Hello.", `,"temperature":-1`)) + "{\n")
	b = r.wait(b.ID, batch.Completed)
	if b.Counts != (batch.Counts{Total: 4, Completed: 2, Failed: 2}) || b.Usage.Output != 16 {
		t.Errorf("%+v, %+v", b.Counts, b.Usage)
	}
	if metrics := r.do("GET", "/metrics", "").body; !regexp.MustCompile(`(?m)^foretoken_offline_rows_total\{.*\} [1-9]`).MatchString(metrics) {
		t.Error("lines are no offline requests:", metrics)
	}
	output := r.do("GET", "/v1/files/"+b.Output+"/content", "").body
	var answers []string
	for text := range strings.Lines(output) {
		var l struct {
			ID       string `json:"custom_id"`
			Response struct {
				Body struct {
					Choices   json.RawMessage `json:"choices"`
					Foretoken struct {
						Seed uint64 `json:"seed"`
					} `json:"foretoken"`
				} `json:"body"`
			} `json:"response"`
		}
		filetest.Decode(t, text, &l)
		seed := map[string]uint64{"seeded": 1, "free": batch.Seed(b.ID, "free")}[l.ID]
		if l.Response.Body.Foretoken.Seed != seed {
			t.Errorf("%s has seed %d, want %d", l.ID, l.Response.Body.Foretoken.Seed, seed)
		}
		online := r.do("POST", chatPath, ask("Hello.", fmt.Sprintf(`,"seed":%d`, seed))).body
		if !strings.Contains(online, string(l.Response.Body.Choices)) {
			t.Errorf("%s: %s, and online %s", l.ID, l.Response.Body.Choices, online)
		}
		answers = append(answers, l.ID)
	}
	if fmt.Sprint(answers) != "[seeded free]" {
		t.Errorf("the output has %s", answers)
	}
	failed := r.do("GET", "/v1/files/"+b.ErrorFile+"/content", "").body
	if !strings.Contains(failed, `"status_code":400`) || !strings.Contains(failed, "line 4: ") {
		t.Error(failed)
	}
	if metrics := r.do("GET", "/metrics", "").body; !strings.Contains(metrics, `foretoken_batch_lines_total{outcome="completed"} 2`) || !strings.Contains(metrics, "foretoken_batch_divergence_total 0") {
		t.Error(metrics)
	}
}

func TestBatchGoesOnAfterARestart(t *testing.T) {
	dir := t.TempDir()
	var content strings.Builder
	for i := range 6 {
		content.WriteString(line(fmt.Sprint(i), fmt.Sprintf(`{"messages":[{"role":"user","content":"Count to %d."}],"max_tokens":6,"seed":%d}`, i, i)))
	}
	folder, err := batch.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	first := start(t, func(o *Options) { o.Batches = &Batches{Store: folder, Queue: batch.NewMemory(), Lines: 1} })
	b := first.begin(content.String())
	until(t, "a result", func() bool {
		for _, err := range folder.List(t.Context(), "results/") {
			return err == nil
		}
		return false
	})
	if err := first.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := folder.Close(); err != nil {
		t.Fatal(err)
	}
	second, _ := startBatches(t, dir, nil)
	if b = second.wait(b.ID, batch.Completed); b.Counts.Completed != 6 {
		t.Errorf("%+v", b.Counts)
	}
	if lines := strings.Count(second.do("GET", "/v1/files/"+b.Output+"/content", "").body, "\n"); lines != 6 {
		t.Errorf("%d lines", lines)
	}
}

func TestBatchesBelongToTheirKey(t *testing.T) {
	keys := keysOf(t, "one", "two")
	r, ahead := startBatches(t, t.TempDir(), func(o *Options) { o.Keys = keys })
	one, two := []string{"Authorization", "Bearer one"}, []string{"Authorization", "Bearer two"}
	b := r.wait(r.begin(line("a", `{"messages":[{"role":"user","content":"Hi."}],"max_tokens":4}`), one...).ID, batch.Completed, one...)
	for _, path := range []string{"/v1/batches/" + b.ID, "/v1/files/" + b.Output, "/v1/files/" + b.Output + "/content"} {
		if a := r.do("GET", path, "", two...); a.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.status)
		}
		if a := r.do("GET", path, "", one...); a.status != http.StatusOK {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	for _, path := range []string{"/v1/batches", "/v1/files"} {
		if a := r.do("GET", path, "", two...); !strings.Contains(a.body, `"data":[]`) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	ahead.Store(int64(batch.DefaultKeep + time.Hour))
	r.lines.coordinator.Wake()
	until(t, "the output has expired", func() bool { return r.do("GET", "/v1/files/"+b.Output, "", one...).status == http.StatusNotFound })
}

func TestBatchExpiresAndIsCanceled(t *testing.T) {
	r, ahead := startBatches(t, t.TempDir(), func(o *Options) {
		o.Models[0].Options.ISA = "generic" // its answers take minutes
	})
	endless := line("a", `{"messages":[{"role":"user","content":"Hi."}],"max_tokens":4000,"ignore_eos":true}`)
	b := r.begin(endless)
	r.wait(b.ID, batch.InProgress)
	if a := r.do("POST", "/v1/batches/"+b.ID+"/cancel", ""); a.status != http.StatusOK || !strings.Contains(a.body, string(batch.Cancelling)) {
		t.Fatal(a)
	}
	if b = r.wait(b.ID, batch.Cancelled); b.Output != "" || b.Counts.Completed != 0 {
		t.Errorf("%+v", b)
	}
	if a := r.do("POST", "/v1/batches/"+b.ID+"/cancel", ""); a.status != http.StatusConflict {
		t.Errorf("canceled again: %d %s", a.status, a.body)
	}
	b = r.begin(endless)
	r.wait(b.ID, batch.InProgress)
	ahead.Store(int64(batch.DefaultWindow))
	r.lines.coordinator.Wake()
	if b = r.wait(b.ID, batch.Expired); !strings.Contains(r.do("GET", "/v1/files/"+b.ErrorFile+"/content", "").body, "batch_expired") {
		t.Errorf("%+v", b)
	}
}

// faultyStore is a store that refuses writes at times.
type faultyStore struct {
	batch.Store
	fault atomic.Pointer[error]
}

func (s *faultyStore) Create(ctx context.Context, key string, r io.Reader) error {
	if e := s.fault.Load(); e != nil {
		return *e
	}
	return s.Store.Create(ctx, key, r)
}

func (s *faultyStore) Put(ctx context.Context, key string, data []byte, rev uint64) (uint64, error) {
	if e := s.fault.Load(); e != nil {
		return 0, *e
	}
	return s.Store.Put(ctx, key, data, rev)
}

func TestStoreThatTakesNothingHasAStatus(t *testing.T) {
	s := &faultyStore{}
	r, _ := startBatches(t, t.TempDir(), func(o *Options) { s.Store, o.Batches.Store = o.Batches.Store, s })
	b := r.begin(line("a", `{"messages":[{"role":"user","content":"Hi."}],"max_tokens":1}`))
	r.wait(b.ID, batch.Completed)
	for _, c := range []struct {
		fault  error
		status int
		says   string
	}{{batch.ErrFull, http.StatusInsufficientStorage, "no space left"}, {batch.ErrUnreachable, http.StatusServiceUnavailable, "cannot be reached"}} {
		s.fault.Store(&c.fault)
		for _, a := range []reply{
			r.upload("{}", nil, "purpose", "batch"),
			r.do("POST", "/v1/batches", fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, b.Input)),
		} {
			if a.status != c.status || !strings.Contains(a.body, c.says) {
				t.Errorf("%v: %d %s", c.fault, a.status, a.body)
			}
		}
	}
	s.fault.Store(nil)
	r.wait(r.begin(line("a", `{"messages":[{"role":"user","content":"Hi."}],"max_tokens":1}`)).ID, batch.Completed)
}

func TestBatchesRefuseWhatIsNone(t *testing.T) {
	r, _ := startBatches(t, t.TempDir(), nil)
	var f batch.File
	if err := json.Unmarshal([]byte(r.upload("{}", nil, "purpose", "batch", "expires_after[anchor]", "created_at", "expires_after[seconds]", "3600").body), &f); err != nil || f.ExpiresAt-f.CreatedAt != 3600 || f.Filename != "in.jsonl" {
		t.Fatal(err, f)
	}
	for _, c := range []struct {
		status int
		param  string
		got    reply
	}{
		{400, "purpose", r.upload("x", nil, "purpose", "fine-tune")},
		{400, "purpose", r.upload("x", nil)},
		{400, "expires_after[seconds]", r.upload("x", nil, "purpose", "batch", "expires_after[seconds]", "1")},
		{400, "", r.do("POST", "/v1/files", "{}")},
		{400, "file", r.do("POST", "/v1/files", "--x\r\nContent-Disposition: form-data; name=purpose\r\n\r\nbatch\r\n--x\r\nContent-Disposition: form-data; name=file; filename="+strings.Repeat("a", 513)+"\r\n\r\nx\r\n--x--\r\n", "Content-Type", "multipart/form-data; boundary=x")},
		{404, "input_file_id", r.do("POST", "/v1/batches", `{"input_file_id":"file-x","endpoint":"/v1/completions","completion_window":"24h"}`)},
		{400, "endpoint", r.do("POST", "/v1/batches", fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/embeddings","completion_window":"24h"}`, f.ID))},
		{400, "completion_window", r.do("POST", "/v1/batches", fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/completions","completion_window":"1h"}`, f.ID))},
		{400, "metadata", r.do("POST", "/v1/batches", fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/completions","completion_window":"24h","metadata":{"a":1}}`, f.ID))},
		{400, "limit", r.do("GET", "/v1/batches?limit=101", "")},
		{400, "order", r.do("GET", "/v1/files?order=up", "")},
		{404, "", r.do("GET", "/v1/batches/..%2f..%2fetc", "")},
		{404, "", r.do("DELETE", "/v1/files/none", "")},
	} {
		if c.got.status != c.status || c.param != "" && !strings.Contains(c.got.body, fmt.Sprintf(`"param":%q`, c.param)) {
			t.Errorf("%d %s, want %d for %q", c.got.status, c.got.body, c.status, c.param)
		}
	}
	for i := range 3 {
		r.upload(fmt.Sprint(i), nil, "purpose", "batch")
	}
	var page struct {
		Data  []batch.File `json:"data"`
		More  bool         `json:"has_more"`
		Last  string       `json:"last_id"`
		First string       `json:"first_id"`
	}
	seen := map[string]bool{}
	for more, after := true, ""; more; more, after = page.More, page.Last {
		filetest.Decode(t, r.do("GET", "/v1/files?limit=3&order=asc&purpose=batch&after="+after, "").body, &page)
		for _, f := range page.Data {
			seen[f.ID] = true
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d files in pages, want 4", len(seen))
	}
	if a := r.do("DELETE", "/v1/files/"+f.ID, ""); a.status != 200 || r.do("GET", "/v1/files/"+f.ID, "").status != 404 {
		t.Errorf("deleted: %d", a.status)
	}
}

func TestBatchRepliesAreAsDocumented(t *testing.T) {
	doc := openapiDocument(t)
	r, _ := startBatches(t, t.TempDir(), nil)
	var f batch.File
	a := r.upload("{", nil, "purpose", "batch")
	filetest.Decode(t, a.body, &f)
	validateReply(t, doc, "POST /v1/files", a)
	validateReply(t, doc, "GET /v1/files/{id}", r.do("GET", "/v1/files/"+f.ID, ""))
	if content := r.do("GET", "/v1/files/"+f.ID+"/content", ""); content.body != "{" || content.header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("%+v", content)
	}
	var b batch.Batch
	a = r.do("POST", "/v1/batches", fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/completions","completion_window":"24h","output_expires_after":{"anchor":"created_at","seconds":3600}}`, f.ID))
	filetest.Decode(t, a.body, &b)
	validateReply(t, doc, "POST /v1/batches", a)
	r.wait(b.ID, batch.Failed)
	validateReply(t, doc, "GET /v1/batches/{id}", r.do("GET", "/v1/batches/"+b.ID, ""))
	validateReply(t, doc, "GET /v1/batches", r.do("GET", "/v1/batches", ""))
	if a = r.do("POST", "/v1/batches/"+b.ID+"/cancel", ""); a.status != http.StatusConflict {
		t.Errorf("a failed batch was canceled: %d", a.status)
	}
	validateReply(t, doc, "POST /v1/batches/{id}/cancel", a)
	validateReply(t, doc, "DELETE /v1/files/{id}", r.do("DELETE", "/v1/files/"+f.ID, ""))
}
