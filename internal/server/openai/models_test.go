package openai

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

func TestModelsSayWhatTheyAre(t *testing.T) {
	ask[chatObject](t, chatPath, `{`+story+`, "max_tokens": 1}`) // loads it
	_, text := send(t, http.MethodGet, "/v1/models", "")
	var list struct {
		Object string
		Data   []modelObject
		First  string `json:"first_id"`
		Last   string `json:"last_id"`
		More   *bool  `json:"has_more"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil || list.Object != "list" || list.First != "tiny" || list.Last != "small" || list.More == nil || *list.More {
		t.Fatalf("%v: %s", err, text)
	}
	var names []string
	for _, m := range list.Data {
		names = append(names, m.ID)
		if m.ID == "thinker" {
			continue // may or may not be loaded
		}
		d := m.Foretoken
		if m.Type != "model" || m.Name != m.ID || m.CreatedAt.Unix() != m.Created || m.Object != "model" || m.OwnedBy != "foretoken" || m.Created == 0 || !d.Loaded || d.Family != "qwen3_5" || d.Context != 1024 ||
			d.Parameters != 18950320 || d.Bytes == 0 || d.Compute != "int8" || !d.MTP || d.Drafter != "auto" || d.Device == "" || (d.AliasOf == "tiny") != (m.ID == "small") ||
			strings.Join(m.Input, " ") != "text image video" || d.Vision == nil || d.Vision.Parameters != 1482496 || d.Vision.MaxPixels != 16384 || d.Vision.TokenSide != 32 {
			t.Errorf("%+v", m)
		}
		_, text := send(t, http.MethodGet, "/v1/models/"+m.ID, "")
		var one modelObject
		if err := json.Unmarshal([]byte(text), &one); err != nil || !reflect.DeepEqual(one, m) {
			t.Errorf("%v: %+v, in the list %+v", err, one, m)
		}
	}
	if got := strings.Join(names, " "); got != "tiny thinker small" {
		t.Errorf("models %s", got)
	}
	status, text := send(t, http.MethodGet, "/v1/models/Qwen/none", "")
	if status != http.StatusNotFound || !strings.Contains(text, `there is no model \"Qwen/none\"; available: [\"tiny\" \"thinker\" \"small\"]`) || !strings.Contains(text, "model_not_found") {
		t.Errorf("status %d: %s", status, text)
	}
}
