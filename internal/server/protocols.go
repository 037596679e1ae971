package server

import (
	"github.com/foretoken/foretoken/internal/server/anthropic"
	"github.com/foretoken/foretoken/internal/server/ollama"
	"github.com/foretoken/foretoken/internal/server/openai"
	"github.com/foretoken/foretoken/internal/server/web"
)

// protocols adds the endpoints that clients ask, and the page.
func (s *Server) protocols() {
	openai.Register(s.mux, s.service)
	anthropic.Register(s.mux, s.service)
	ollama.Register(s.mux, s.service)
	page := web.Handler()
	s.open("GET /{$}", page.ServeHTTP)
	s.open("GET /assets/", page.ServeHTTP)
}
