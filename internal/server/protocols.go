package server

import (
	"net/http"

	"github.com/foretoken/foretoken/internal/server/anthropic"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/ollama"
	"github.com/foretoken/foretoken/internal/server/openai"
	"github.com/foretoken/foretoken/internal/server/web"
)

// protocols adds the endpoints of clients, and the page.
func (s *Server) protocols() {
	routes := body.On(s.mux, callerOf)
	s.openai = openai.New(s.service)
	s.openai.Register(routes)
	anthropic.Register(routes, s.service)
	ollama.Register(routes, s.service)
	page := web.Handler()
	s.open("GET /{$}", page.ServeHTTP)
	s.open("GET /assets/", page.ServeHTTP)
}

// callerOf is the caller of the request that w answers, which serve has identified.
func callerOf(w http.ResponseWriter) generate.Caller { return w.(*recorder).caller }
