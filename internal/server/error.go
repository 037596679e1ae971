package server

import (
	"net/http"
	"strings"

	"github.com/foretoken/foretoken/internal/server/anthropic"
	"github.com/foretoken/foretoken/internal/server/ollama"
	"github.com/foretoken/foretoken/internal/server/openai"
)

// writeError answers with an error in the format of the protocol that the path belongs to.
// It is for errors before a protocol's own handler runs.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	switch path := r.URL.Path; {
	case strings.HasPrefix(path, "/api/"):
		ollama.WriteError(w, err)
	case path == "/v1/messages" || strings.HasPrefix(path, "/v1/messages/"):
		anthropic.WriteError(w, err)
	default:
		openai.WriteError(w, err)
	}
}
