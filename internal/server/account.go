package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// statusGone is the logged status of a request whose client disconnected. It is never sent.
const statusGone = 499

// account collects the log line and the counts of one request.
type account struct {
	s       *Server
	r       *http.Request
	start   time.Time
	id      string
	pattern string // of the endpoint
	key     string // the key's name for the log; "": no key was needed
	tenant  string // the key's secret name, which is not logged
	flow    string // the tenant, or without keys the client's address
	leave   func() // frees the request's place of perKey

	err    *generate.Error
	runs   int
	usage  generate.Usage // of all runs
	model  string         // of the first run, like the following fields
	seed   uint64
	finish foretoken.Finish
	stats  *generate.Stats
}

// endpoint is the pattern without its method, one of a few.
func (a *account) endpoint() string {
	if _, path, ok := strings.Cut(a.pattern, " "); ok {
		return path
	}
	return a.pattern
}

// report is the Reporter of the request. A completion of several prompts has several runs.
func (a *account) report(run *generate.Run, err error) {
	if err != nil {
		a.err = generate.Wrap(err)
	}
	if run == nil {
		return
	}
	a.runs++
	if a.runs == 1 {
		a.model, a.seed = run.Name, run.Seed
	}
	if len(run.Answers) == 0 || err != nil && len(run.Answers) > 1 {
		return // some of them may still run
	}
	a.s.metrics.run(a, run)
	u := run.Usage()
	a.usage.Prompt += u.Prompt
	a.usage.Cached += u.Cached
	a.usage.Completion += u.Completion
	a.usage.Reasoning += u.Reasoning
	if a.stats == nil {
		r := generate.NewStats(run.Answers[0])
		a.finish, a.stats = run.Answers[0].Finish, &r
	}
}

// facts are the attributes that the log has of the runs.
func (a *account) facts() []any {
	if a.runs == 0 {
		return nil
	}
	list := []any{"model", a.model, "seed", a.seed}
	if a.runs > 1 {
		list = append(list, "prompts", a.runs)
	}
	if a.stats == nil {
		return list
	}
	u, g := &a.usage, &a.stats.Timings
	list = append(list, "prompt_tokens", u.Prompt, "cached_tokens", u.Cached, "tokens", u.Completion, "reasoning_tokens", u.Reasoning,
		"finish", string(a.finish), "queue_ms", g.QueueMS, "prefill_ms", g.PrefillMS, "decode_ms", g.DecodeMS, "tok_s", g.DecodeTokS, "batch", g.Batch)
	if g.Preempted > 0 {
		list = append(list, "preempted", g.Preempted)
	}
	if m := a.stats.MTP; m != nil {
		list = append(list, "rounds", m.Rounds, "drafted", m.Drafted, "accepted", m.Accepted, "forced", m.Forced, "accepted_by_position", m.AcceptedByPosition(), "depth", m.MeanDepth())
	}
	return list
}

// close counts the request and writes its line.
func (a *account) close(w *recorder) {
	took := time.Since(a.start)
	status, gone := w.status, a.r.Context().Err() != nil
	if gone && (status == 0 || a.err != nil && errors.Is(a.err, context.Canceled)) {
		status = statusGone
	}
	if status == 0 {
		status = http.StatusOK // as net/http sends it
	}
	a.s.metrics.request(a, status, took)
	if fields := w.Header().Get(body.Ignored); fields != "" {
		a.s.log.Debug("ignored fields", "request_id", a.id, "path", a.r.URL.Path, "fields", fields)
	}
	level := slog.LevelInfo
	switch {
	case a.s.quiet(a.pattern) && (status < http.StatusBadRequest || status == http.StatusServiceUnavailable):
		level = slog.LevelDebug // probes and scrapes come every few seconds; "not ready yet" is not an error
	case gone && (w.status != http.StatusOK || a.runs == 0):
		level = slog.LevelDebug // HTTP/2 clients can open and reset streams by the thousand: foretoken_http_requests_total counts them
	case status >= http.StatusInternalServerError, a.err != nil && a.err.Kind == generate.Internal: // a stream may have begun with 200
		level = slog.LevelError
	}
	if !a.s.log.Enabled(a.r.Context(), level) {
		return
	}
	attrs := []any{
		"request_id", a.id, "method", a.r.Method, "path", a.r.URL.Path, "status", status,
		"ms", float64(took.Microseconds()) / 1e3, "bytes", w.bytes, "client", a.r.RemoteAddr,
	}
	if a.key != "" {
		attrs = append(attrs, "key", a.key)
	}
	attrs = append(attrs, a.facts()...)
	if a.err != nil {
		attrs = append(attrs, "kind", string(a.err.Kind), "error", a.err.Error())
		if a.err.Err != nil && a.err.Kind == generate.Internal {
			attrs = append(attrs, "cause", a.err.Err)
		}
	}
	a.s.log.Log(a.r.Context(), level, "request", attrs...)
}
