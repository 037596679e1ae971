package ollama

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/private"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// apiVersion is the implemented version of Ollama's API: clients check it before they use
// newer features, such as thinking.
const apiVersion = "0.12.0"

// version answers which API this is, and whose.
func version(http.ResponseWriter, *http.Request, generate.Caller) (any, error) {
	ours := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		ours = info.Main.Version
	}
	return struct {
		Version   string `json:"version"`
		Foretoken string `json:"foretoken"`
	}{apiVersion, ours}, nil
}

// entry is a model in a list.
type entry struct {
	Name     string    `json:"name"`
	Model    string    `json:"model"`
	Modified time.Time `json:"modified_at,omitzero"`
	Expires  time.Time `json:"expires_at,omitzero"`
	Size     int64     `json:"size"` // bytes of weights in memory; 0: it is not loaded
	VRAM     *int64    `json:"size_vram,omitempty"`
	Context  int       `json:"context_length,omitempty"`
	Digest   string    `json:"digest"` // of the name: weights are not hashed for a list
	Details  details   `json:"details"`
	// Capabilities are known of a model that is loaded.
	Capabilities []string `json:"capabilities,omitempty"`
}

// details describe a model, as far as is known while it is not loaded.
type details struct {
	Parent       string   `json:"parent_model"`
	Format       string   `json:"format"`
	Family       string   `json:"family"`
	Families     []string `json:"families"`
	Parameters   string   `json:"parameter_size"`
	Quantization string   `json:"quantization_level"`
}

func describe(m *foretoken.Model) details {
	if m == nil {
		return details{Families: []string{}}
	}
	i := m.Info()
	return details{
		Family: i.Family, Families: []string{i.Family},
		Parameters: parameters(i.Parameters), Quantization: i.Compute.String(),
	}
}

// parameters is a number of parameters, for people.
func parameters(n int64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.1fB", float64(n)/1e9)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1e6)
}

func newEntry(name string, m *foretoken.Model) entry {
	sum := sha256.Sum256([]byte(name))
	e := entry{Name: name, Model: name, Digest: hex.EncodeToString(sum[:]), Details: describe(m)}
	if m != nil {
		e.Size, e.Capabilities = m.Info().Bytes, capabilities(m)
	}
	return e
}

// capabilities are the model's abilities, in the protocol's words.
func capabilities(m *foretoken.Model) []string {
	list := []string{"completion"}
	template := private.Template(m, true)
	if strings.Contains(template, "tools") {
		list = append(list, "tools")
	}
	if strings.Contains(template, "enable_thinking") || strings.Contains(template, "thinking is defined") { // DeepSeek's name for it
		list = append(list, "thinking")
	}
	if m.Info().Vision != nil {
		list = append(list, "vision")
	}
	return list
}

// list is an answer with models.
type list struct {
	Models []entry `json:"models"`
}

// loaded is the models in memory, by their names.
func (h *handler) loaded() map[string]*foretoken.Model {
	models := map[string]*foretoken.Model{}
	for _, v := range h.service.Library.Status() {
		if v.Model != nil {
			models[v.Name] = v.Model
		}
	}
	return models
}

// tags lists the models there are, under all their names.
func (h *handler) tags(http.ResponseWriter, *http.Request, generate.Caller) (any, error) {
	all, loaded := list{[]entry{}}, h.loaded()
	for _, name := range h.service.Names() {
		e := newEntry(name, loaded[h.service.Resolve(name)])
		e.Modified = h.start
		all.Models = append(all.Models, e)
	}
	return all, nil
}

// running lists the models in memory. When one will leave it is not known in advance.
func (h *handler) running(http.ResponseWriter, *http.Request, generate.Caller) (any, error) {
	running, loaded := list{[]entry{}}, h.loaded()
	for _, name := range slices.Sorted(maps.Keys(loaded)) {
		m := loaded[name]
		e := newEntry(name, m)
		e.Context, e.VRAM = m.Context(), new(int64)
		e.Expires = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
		running.Models = append(running.Models, e)
	}
	return running, nil
}

// show describes a model, which is loaded for it.
func (h *handler) show(w http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	v := body.Read(w, r).Strict(c.Strict)
	v.Ignore("verbose")
	name := h.modelOf(v)
	if name == "" {
		v.Field("model").Required()
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	m, done, err := h.service.Library.Use(r.Context(), h.service.Resolve(name))
	if err != nil {
		return nil, err
	}
	defer done()
	i := m.Info()
	info := map[string]any{
		"general.architecture":         i.Family,
		"general.parameter_count":      i.Parameters,
		i.Family + ".context_length":   m.Context(),
		i.Family + ".block_count":      i.Layers,
		i.Family + ".embedding_length": i.Width,
		i.Family + ".vocab_size":       i.Vocab,
		i.Family + ".nextn_head":       i.Head,
	}
	if x := i.Vision; x != nil {
		info[i.Family+".vision.block_count"] = x.Layers
		info[i.Family+".vision.embedding_length"] = x.Width
		info[i.Family+".vision.patch_size"] = x.Patch
	}
	return struct {
		Modelfile    string         `json:"modelfile"`
		Parameters   string         `json:"parameters"`
		Template     string         `json:"template"`
		Details      details        `json:"details"`
		Info         map[string]any `json:"model_info"`
		Capabilities []string       `json:"capabilities"`
		Modified     time.Time      `json:"modified_at"`
	}{
		Modelfile: "FROM " + name + "\n", Parameters: recommended(m), Template: private.Template(m, true), Details: describe(m),
		Info: info, Capabilities: capabilities(m), Modified: h.start,
	}, nil
}

// recommended is how a model recommends to choose tokens, as lines of names and values.
func recommended(m *foretoken.Model) string {
	o := m.Sampling()
	return fmt.Sprintf("temperature %v\ntop_k %d\ntop_p %v\nmin_p %v\nrepeat_penalty %v\nnum_ctx %d",
		o.Temperature, o.TopK, o.TopP, o.MinP, o.RepetitionPenalty, m.Context())
}
