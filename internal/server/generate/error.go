package generate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/jinja"
	"github.com/foretoken/foretoken/internal/library"
)

// Kind is the kind of an error, for programs.
type Kind string

// The kinds of errors.
const (
	BadRequest   Kind = "invalid_request"
	Unauthorized Kind = "unauthorized"
	NotFound     Kind = "not_found"
	TooLarge     Kind = "too_large" // a prompt or a body
	Busy         Kind = "busy"      // try again
	Unavailable  Kind = "unavailable"
	Unsupported  Kind = "unsupported" // by the server, or by the model
	Canceled     Kind = "canceled"    // by the client, which has disconnected
	Internal     Kind = "internal"
)

// Error is an error of a request, by the client or the server. Each protocol has its own JSON for
// it.
type Error struct {
	Status     int // of HTTP
	Kind       Kind
	Param      string // the wrong field, by the client's name; "": none in particular
	Message    string // for people
	RetryAfter time.Duration
	Err        error // its cause, for the log; may be nil
}

func (e *Error) Error() string {
	if e.Param != "" {
		return e.Param + ": " + e.Message
	}
	return e.Message
}

// Unwrap returns the error behind it.
func (e *Error) Unwrap() error { return e.Err }

// Invalid is the error for a field with a value that is not valid.
func Invalid(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Kind: BadRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// NotSupported is the error for a field that requests an unsupported feature.
func NotSupported(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Kind: Unsupported, Param: param, Message: fmt.Sprintf(format, args...)}
}

// Wrap makes an *Error of any error.
func Wrap(err error) *Error {
	var e *Error
	var refusal *jinja.RaiseError
	var limit *jinja.LimitError
	var render *dialogue.RenderError
	var variable *dialogue.VariableError
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, library.ErrUnknown):
		return &Error{Status: http.StatusNotFound, Kind: NotFound, Param: "model", Message: strings.TrimPrefix(tidy(err), "foretoken: "), Err: err}
	case errors.Is(err, engine.ErrBusy):
		return &Error{Status: http.StatusTooManyRequests, Kind: Busy, Message: "too many requests are waiting: try again in a moment", RetryAfter: time.Second, Err: err}
	case errors.Is(err, engine.ErrTooLarge):
		return &Error{Status: http.StatusBadRequest, Kind: TooLarge, Message: tidy(err), Err: err}
	case errors.Is(err, engine.ErrClosed):
		return &Error{Status: http.StatusServiceUnavailable, Kind: Unavailable, Message: "the server is shutting down", Err: err}
	case errors.Is(err, engine.ErrBroken):
		return &Error{Status: http.StatusServiceUnavailable, Kind: Unavailable, Message: tidy(err), Err: err}
	case errors.Is(err, foretoken.ErrNoTemplate):
		return &Error{Status: http.StatusBadRequest, Kind: Unsupported, Param: "messages", Message: "the model has no chat template: use completions", Err: err}
	case errors.As(err, &refusal):
		return &Error{Status: http.StatusBadRequest, Kind: BadRequest, Param: "messages", Message: "the model's chat template refuses the conversation: " + tidy(err), Err: err}
	case errors.As(err, &limit):
		return &Error{Status: http.StatusBadRequest, Kind: TooLarge, Param: "messages", Message: "the conversation is too long for the model's chat template: " + tidy(err) + ": shorten it", Err: err}
	case errors.As(err, &render):
		return &Error{Status: http.StatusBadRequest, Kind: BadRequest, Param: "messages", Message: "the model's chat template cannot render the conversation: " + tidy(render.Err), Err: err}
	case errors.As(err, &variable):
		return &Error{Status: http.StatusBadRequest, Kind: BadRequest, Param: "chat_template_kwargs." + variable.Name, Message: tidy(variable.Err), Err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &Error{Status: 499, Kind: Canceled, Message: "the request was canceled", Err: err}
	case errors.Is(err, foretoken.ErrGrammar):
		return &Error{Status: http.StatusBadRequest, Kind: BadRequest, Param: "response_format", Message: tidy(err), Err: err}
	}
	if e := mediaError(err); e != nil {
		return e
	}
	return &Error{Status: http.StatusInternalServerError, Kind: Internal, Message: tidy(err), Err: err}
}

// Rename is Wrap with a protocol's own names of fields, if they differ from ours.
func Rename(err error, names map[string]string) *Error {
	e := *Wrap(err)
	if name, ok := names[e.Param]; ok {
		e.Param = name
	}
	return &e
}

// tidy is an error's text without the stack that may follow it, which is for the log.
func tidy(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}
