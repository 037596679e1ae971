package openai

import (
	"encoding/hex"
	"net/http"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/private"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// rendered is the prompt of a request as the model gets it, in the format of vLLM's render
// endpoints, which gateways use.
type rendered struct {
	Model    string    `json:"model"`
	IDs      []int32   `json:"token_ids"`
	Features *features `json:"features,omitempty"` // of images and videos
}

// features are the places of images and videos among the ids, and their contents. All ids of a
// place are the same.
type features struct {
	Hashes map[string][]string   `json:"mm_hashes"`
	Places map[string][]idsRange `json:"mm_placeholders"`
}

type idsRange struct {
	Offset int `json:"offset"`
	Length int `json:"length"`
}

// image is the kind of all contents of places: gateways do not distinguish them.
const image = "image"

func newRendered(name string, p *foretoken.Prompt) rendered {
	r := rendered{Model: name, IDs: p.IDs}
	for _, x := range private.Rows(p) {
		if r.Features == nil {
			r.Features = &features{map[string][]string{}, map[string][]idsRange{}}
		}
		r.Features.Hashes[image] = append(r.Features.Hashes[image], hex.EncodeToString(x.Hash[:]))
		r.Features.Places[image] = append(r.Features.Places[image], idsRange{x.At, x.N})
	}
	return r
}

// renderChat returns the prompt of a conversation.
func (h *API) renderChat(w http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	q, err := readChat(c, body.Read(w, r).Strict(c.Strict))
	if err != nil {
		return nil, err
	}
	p, err := h.service.Render(r.Context(), &q.Request)
	if err != nil {
		return nil, q.explain(err)
	}
	return newRendered(h.service.Name(&q.Request), p), nil
}

// renderText returns the prompts of texts.
func (h *API) renderText(w http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	q, err := readText(c, body.Read(w, r).Strict(c.Strict))
	if err != nil {
		return nil, err
	}
	list := []rendered{}
	for _, one := range q.requests {
		p, err := h.service.Render(r.Context(), one)
		if err != nil {
			return nil, q.explain(err)
		}
		list = append(list, newRendered(h.service.Name(one), p))
	}
	return list, nil
}
