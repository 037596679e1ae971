package body

import (
	"net/http"

	"github.com/foretoken/foretoken/internal/server/generate"
)

// Handler answers a request of a caller with the JSON of a response, or with an error. Both nil: it has
// written the response itself.
type Handler func(w http.ResponseWriter, r *http.Request, c generate.Caller) (answer any, err error)

// Routes adds the handler of a pattern of http.ServeMux. Errors are reported, and written by fail.
type Routes func(pattern string, h Handler, fail func(http.ResponseWriter, error))

// On returns the Routes of mux. caller returns the caller of the request that w answers; nil: all have
// the zero value.
func On(mux *http.ServeMux, caller func(w http.ResponseWriter) generate.Caller) Routes {
	return func(pattern string, h Handler, fail func(http.ResponseWriter, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			var c generate.Caller
			if caller != nil {
				c = caller(w)
			}
			c.Stats = r.Header.Get("X-Foretoken-Stats") == "1"
			switch answer, err := h(w, r, c); {
			case err != nil:
				c.Report(nil, err)
				fail(w, err)
			case answer != nil:
				JSON(w, http.StatusOK, answer)
			}
		})
	}
}
