package body

import (
	"net/http"

	"github.com/foretoken/foretoken/internal/server/generate"
)

// Handler answers a request of a caller.
type Handler func(w http.ResponseWriter, r *http.Request, c generate.Caller)

// Routes adds the handler of a pattern of http.ServeMux.
type Routes func(pattern string, h Handler)

// On returns the Routes of mux. caller returns the caller of the request that w answers; nil: all have
// the zero value.
func On(mux *http.ServeMux, caller func(w http.ResponseWriter) generate.Caller) Routes {
	return func(pattern string, h Handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			var c generate.Caller
			if caller != nil {
				c = caller(w)
			}
			c.Stats = r.Header.Get("X-Foretoken-Stats") == "1"
			h(w, r, c)
		})
	}
}
