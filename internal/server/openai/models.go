package openai

import (
	"net/http"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/library"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// modelObject is a model in the format of OpenAI and Anthropic, whose clients both use this endpoint, with
// our extensions.
type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// The fields that Anthropic has beside ID.
	Type      string    `json:"type"`
	Name      string    `json:"display_name"`
	CreatedAt time.Time `json:"created_at"`
	// Kinds of input and output of a loaded model: text, image, video.
	Input     []string     `json:"input_modalities,omitempty"`
	Output    []string     `json:"output_modalities,omitempty"`
	Foretoken modelDetails `json:"foretoken"`
}

// modelDetails describe a loaded model; for another, only the target of an alias.
type modelDetails struct {
	Loaded     bool    `json:"loaded"`
	AliasOf    string  `json:"alias_of,omitempty"`
	Family     string  `json:"family,omitempty"`
	Context    int     `json:"context,omitempty"` // maximum tokens of a prompt and its answer
	Vocab      int     `json:"vocab,omitempty"`
	Parameters int64   `json:"parameters,omitempty"`
	Bytes      int64   `json:"bytes,omitempty"` // of weights in memory
	Compute    string  `json:"compute,omitempty"`
	Device     string  `json:"device,omitempty"`
	MTP        bool    `json:"mtp"`               // it has a multi-token-prediction head
	Vision     *vision `json:"vision,omitempty"`  // absent: it takes no images
	Drafter    string  `json:"drafter,omitempty"` // absent: none
	// DrafterModel is the drafter in files of its own; absent: none.
	DrafterModel *drafterModel `json:"drafter_model,omitempty"`
}

// drafterModel describes a drafter.
type drafterModel struct {
	Kind  string `json:"kind"`
	Bytes int64  `json:"bytes"` // of weights in memory
}

// vision describes a vision tower.
type vision struct {
	Parameters int64 `json:"parameters"`
	Bytes      int64 `json:"bytes"`      // of weights in memory
	MaxPixels  int   `json:"max_pixels"` // of an image, larger ones are shrunk
	TokenSide  int   `json:"token_side"` // side of the pixels of a token
}

// models lists the models there are, aliases included.
func (h *API) models(http.ResponseWriter, *http.Request, generate.Caller) (any, error) {
	names := h.service.Names() // one at least
	list := struct {
		Object string        `json:"object"`
		Data   []modelObject `json:"data"`
		// The page of Anthropic's, which is the only one.
		First string `json:"first_id"`
		Last  string `json:"last_id"`
		More  bool   `json:"has_more"`
	}{Object: "list", First: names[0], Last: names[len(names)-1]}
	for _, name := range names {
		list.Data = append(list.Data, h.describe(name))
	}
	return list, nil
}

// model describes one.
func (h *API) model(_ http.ResponseWriter, r *http.Request, _ generate.Caller) (any, error) {
	name := r.PathValue("id")
	if names := h.service.Names(); !slices.Contains(names, name) {
		return nil, &generate.Error{
			Status: http.StatusNotFound, Kind: generate.NotFound, Param: "model",
			Message: generate.Invalid("", "there is no model %.200q; available: %q", name, names).Message,
		}
	}
	return h.describe(name), nil
}

// describe describes a model without loading it.
func (h *API) describe(name string) modelObject {
	started := h.started.UTC().Truncate(time.Second)
	o := modelObject{ID: name, Object: "model", Created: started.Unix(), OwnedBy: "foretoken", Type: "model", Name: name, CreatedAt: started}
	resolved := h.service.Resolve(name)
	if resolved != name {
		o.Foretoken.AliasOf = resolved
	}
	loaded := h.service.Library.Status()
	at := slices.IndexFunc(loaded, func(v library.Status) bool { return v.Name == resolved })
	if at < 0 || loaded[at].Model == nil {
		return o
	}
	m := loaded[at].Model
	i := m.Info()
	d := &o.Foretoken
	d.Loaded, d.Family, d.Context, d.Vocab = true, i.Family, m.Context(), m.Vocab()
	d.Parameters, d.Bytes, d.Compute, d.Device = i.Parameters, i.Bytes, i.Compute.String(), m.Device()
	d.MTP, d.Drafter = i.Head, m.Drafter()
	if i.Drafter != nil {
		d.DrafterModel = &drafterModel{i.Drafter.Kind, i.Drafter.Bytes}
	}
	o.Input, o.Output = []string{"text"}, []string{"text"}
	if v := i.Vision; v != nil {
		o.Input = append(o.Input, "image", "video")
		d.Vision = &vision{v.Parameters, v.Bytes, v.MaxPixels, v.Patch * v.Merge}
	}
	return o
}
