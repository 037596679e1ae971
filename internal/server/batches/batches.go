// Package batches serves OpenAI's files and batches. It knows their JSON, their lists and how files
// are uploaded; package batch keeps and runs them.
package batches

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/openai"
)

// PatternUpload is the endpoint whose body is streamed to the store and not read before its handler
// runs.
const PatternUpload = "POST /v1/files"

// Limits of the protocol.
const (
	purpose = "batch"
	window  = "24h"

	minKeep, maxKeep                       = time.Hour, 30 * 24 * time.Hour
	maxPairs, maxPairName, maxPairValue    = 16, 64, 512
	maxFilesPage, maxBatchesPage, nextPage = 10_000, 100, 20
	maxFilename                            = 512
)

// API answers the requests for files and batches.
type API struct {
	Coordinator *batch.Coordinator
	Owner       func(tenant string) string // under whose name files and batches of a tenant are stored
}

// Register adds the routes.
func (d *API) Register(routes body.Routes) {
	for pattern, f := range map[string]body.Handler{
		PatternUpload:                  d.upload,
		"GET /v1/files":                d.files,
		"GET /v1/files/{id}":           d.file,
		"DELETE /v1/files/{id}":        d.deleteFile,
		"GET /v1/files/{id}/content":   d.content,
		"POST /v1/batches":             d.submit,
		"GET /v1/batches":              d.batches,
		"GET /v1/batches/{id}":         d.batch,
		"POST /v1/batches/{id}/cancel": d.cancel,
	} {
		routes(pattern, func(w http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
			answer, err := f(w, r, c)
			return answer, explain(err, r.PathValue("id"))
		}, openai.WriteError)
	}
}

// explain gives an error its status.
func explain(err error, id string) error {
	is := func(status int, kind generate.Kind, format string, args ...any) error {
		return &generate.Error{Status: status, Kind: kind, Message: fmt.Sprintf(format, args...), Err: err}
	}
	var known *generate.Error
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return is(http.StatusNotFound, generate.NotFound, "%.80q does not exist: it was never created, has expired, or belongs to another key", id)
	case errors.Is(err, batch.ErrTooLarge):
		return is(http.StatusRequestEntityTooLarge, generate.TooLarge, "the file is larger than %d bytes, the maximum of a batch: split it", batch.MaxFile)
	case errors.Is(err, batch.ErrFull):
		return is(http.StatusInsufficientStorage, generate.Unavailable, "the server has no space left for batches: delete files, or try again later")
	case errors.Is(err, batch.ErrUnreachable):
		return is(http.StatusServiceUnavailable, generate.Unavailable, "the queue of batches cannot be reached: try again later")
	case errors.Is(err, batch.ErrInUse), errors.Is(err, batch.ErrOver):
		return is(http.StatusConflict, generate.BadRequest, "%v", err)
	}
	return err
}

// list is a part of a list.
type list[T any] struct {
	Object  string  `json:"object"`
	Data    []T     `json:"data"`
	First   *string `json:"first_id"`
	Last    *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

func newList[T any](data []T, more bool, id func(T) string) list[T] {
	l := list[T]{Object: "list", Data: data, HasMore: more}
	if len(data) == 0 {
		l.Data = []T{}
		return l
	}
	first, last := id(data[0]), id(data[len(data)-1])
	l.First, l.Last = &first, &last
	return l
}

// page reads which part of a list is wanted.
func page(r *http.Request, limit, most int) (p batch.Page, err error) {
	q := r.URL.Query()
	p = batch.Page{After: q.Get("after"), Purpose: q.Get("purpose"), Limit: limit}
	if text := q.Get("limit"); text != "" {
		if p.Limit, err = strconv.Atoi(text); err != nil || p.Limit < 1 || p.Limit > most {
			return p, generate.Invalid("limit", "%.20q, want a number from 1 to %d", text, most)
		}
	}
	switch order := q.Get("order"); order {
	case "", "desc":
	case "asc":
		p.Ascending = true
	default:
		return p, generate.Invalid("order", "%.20q, want asc or desc", order)
	}
	return p, nil
}

func (d *API) files(_ http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	p, err := page(r, maxFilesPage, maxFilesPage)
	if err != nil {
		return nil, err
	}
	files, more, err := d.Coordinator.Files(r.Context(), d.Owner(c.Tenant), p)
	return newList(files, more, func(f batch.File) string { return f.ID }), err
}

func (d *API) file(_ http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	return d.Coordinator.File(r.Context(), d.Owner(c.Tenant), r.PathValue("id"))
}

func (d *API) deleteFile(_ http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	id := r.PathValue("id")
	return openai.Deleted{ID: id, Object: "file", Deleted: true}, d.Coordinator.DeleteFile(r.Context(), d.Owner(c.Tenant), id)
}

func (d *API) content(w http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	f, content, err := d.Coordinator.Content(r.Context(), d.Owner(c.Tenant), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = content.Close() }() // read only
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(f.Bytes, 10))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if _, err := io.Copy(w, content); err != nil {
		panic(http.ErrAbortHandler) // what was sent is not all of it
	}
	return nil, nil
}

func (d *API) submit(w http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	v := body.Read(w, r).Strict(c.Strict)
	s := batch.Submission{
		Owner: d.Owner(c.Tenant), Input: v.Field("input_file_id").Required().Text(), Metadata: map[string]string{},
		Endpoint: v.Field("endpoint").Required().OneOf(batch.Endpoints...),
	}
	v.Field("completion_window").Required().OneOf(window)
	readMetadata(v.Field("metadata"), s.Metadata)
	s.KeepOutput = keep(v.Field("output_expires_after"))
	if err := v.Err(); err != nil {
		return nil, err
	}
	b, err := d.Coordinator.Submit(r.Context(), s)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &generate.Error{Status: http.StatusNotFound, Kind: generate.NotFound, Param: "input_file_id", Message: fmt.Sprintf("the file %.80q does not exist: upload it first, with the same key", s.Input)}
	}
	return b, err
}

// readMetadata reads pairs of texts.
func readMetadata(v *body.Value, to map[string]string) {
	if v.Absent() {
		return
	}
	for name, item := range v.Fields() {
		if !item.IsText() {
			v.Fault("want an object whose values are strings")
		}
		if to[name] = item.Text(); len(name) > maxPairName || len(to[name]) > maxPairValue {
			v.Fault("%.80q: names have at most %d characters and values %d", name, maxPairName, maxPairValue)
		}
		if len(to) > maxPairs {
			v.Fault("more than %d pairs", maxPairs)
		}
	}
}

// keep reads how long a file is kept; 0: as long as by default.
func keep(v *body.Value) time.Duration {
	if v.Absent() {
		return 0
	}
	v.Field("anchor").Required().OneOf("created_at")
	n := v.Field("seconds").Required().Int(int64(minKeep/time.Second), int64(maxKeep/time.Second))
	if n == nil {
		return 0
	}
	return time.Duration(*n) * time.Second
}

func (d *API) batches(_ http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	p, err := page(r, nextPage, maxBatchesPage)
	if err != nil {
		return nil, err
	}
	batches, more, err := d.Coordinator.Batches(r.Context(), d.Owner(c.Tenant), p)
	return newList(batches, more, func(b batch.Batch) string { return b.ID }), err
}

func (d *API) batch(_ http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	return d.Coordinator.Batch(r.Context(), d.Owner(c.Tenant), r.PathValue("id"))
}

func (d *API) cancel(_ http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	return d.Coordinator.Cancel(r.Context(), d.Owner(c.Tenant), r.PathValue("id"))
}

// form is what an upload says besides its content.
type form struct {
	upload            *batch.Upload
	filename, purpose string
	anchor, seconds   string
}

// upload takes a file. Its parts may come in any order, so that the content is stored before it is
// known whether it is wanted; it is deleted if not.
func (d *API) upload(_ http.ResponseWriter, r *http.Request, c generate.Caller) (answer any, err error) {
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, generate.Invalid("", "a file is uploaded as multipart/form-data, with the parts file and purpose: %v", err)
	}
	var f form
	defer func() {
		if err != nil && f.upload != nil {
			err = errors.Join(err, f.upload.Drop(r.Context()))
		}
	}()
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, unread(err)
		}
		switch name := part.FormName(); {
		case name == "file" && f.upload != nil:
			return nil, generate.Invalid("file", "there are two files: upload one file per request")
		case name == "file":
			f.filename = part.FileName()
			if f.upload, err = d.Coordinator.Upload(r.Context(), &reading{part}); err != nil {
				f.upload = nil
				return nil, err
			}
		default:
			if err := f.field(name, part); err != nil {
				return nil, err
			}
		}
	}
	seconds, err := f.check()
	if err != nil {
		return nil, err
	}
	file, err := f.upload.Keep(r.Context(), d.Owner(c.Tenant), f.filename, f.purpose, seconds)
	if err != nil {
		f.upload = nil // Keep has deleted it
		return nil, err
	}
	return file, nil
}

// reading marks the errors of a client that does not send what it said.
type reading struct{ io.Reader }

// Read implements io.Reader.
func (r *reading) Read(to []byte) (int, error) {
	n, err := r.Reader.Read(to)
	if err != nil && !errors.Is(err, io.EOF) {
		err = unread(err)
	}
	return n, err
}

func unread(err error) error {
	return &generate.Error{Status: http.StatusBadRequest, Kind: generate.BadRequest, Message: "the upload ended early", Err: err}
}

// field reads a small part.
func (f *form) field(name string, part io.Reader) error {
	const most = 1 << 10
	data, err := io.ReadAll(io.LimitReader(part, most+1))
	if err != nil {
		return unread(err)
	}
	if len(data) > most {
		return generate.Invalid(name, "it is longer than %d bytes", most)
	}
	switch text := strings.TrimSpace(string(data)); name {
	case "purpose":
		f.purpose = text
	case "expires_after[anchor]":
		f.anchor = text
	case "expires_after[seconds]":
		f.seconds = text
	}
	return nil
}

// check checks what an upload says, and returns how long it is kept.
func (f *form) check() (time.Duration, error) {
	switch {
	case f.upload == nil:
		return 0, generate.Invalid("file", "the file is missing")
	case len(f.filename) > maxFilename:
		return 0, generate.Invalid("file", "its name has %d bytes, want at most %d", len(f.filename), maxFilename)
	case f.purpose != purpose:
		return 0, generate.Invalid("purpose", "%.40q, want %s: only files for batches are supported", f.purpose, purpose)
	case f.anchor == "" && f.seconds == "":
		return 0, nil
	case !slices.Contains([]string{"", "created_at"}, f.anchor):
		return 0, generate.Invalid("expires_after[anchor]", "%.40q, want created_at", f.anchor)
	}
	n, err := strconv.Atoi(f.seconds)
	if d := time.Duration(n) * time.Second; err != nil || n > int(maxKeep/time.Second) || d < minKeep {
		return 0, generate.Invalid("expires_after[seconds]", "%.40q, want a number from %d to %d", f.seconds, minKeep/time.Second, maxKeep/time.Second)
	}
	return time.Duration(n) * time.Second, nil
}
