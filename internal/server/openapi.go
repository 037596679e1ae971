package server

import (
	_ "embed" // for the document
	"net/http"
)

// document is the OpenAPI description of the endpoints.
//
//go:embed openapi.json
var document []byte

// openapi describes the endpoints to programs.
func (s *Server) openapi(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(document) // the client may have gone
}
