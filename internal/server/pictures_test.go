package server

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// seen is the embedded model's description of the example image.
const seen = "There is a pink house and a black heart."

// example is the example image.
func example(t testing.TB) []byte {
	t.Helper()
	return filetest.Read(t, "../../examples/pictures/house-and-heart.png")
}

// dataURL is a file as a JSON string with its data: URL.
func dataURL(data []byte) string {
	return `"data:image/png;base64,` + base64.StdEncoding.EncodeToString(data) + `"`
}

// asked are requests about an image, by path, in all protocols.
func asked(t testing.TB, more string) map[string][]string {
	t.Helper()
	url := dataURL(example(t))
	plain := `"` + base64.StdEncoding.EncodeToString(example(t)) + `"`
	const ask = `{"type": "text", "text": "What do you see?"}`
	return map[string][]string{
		chatPath: {
			`{"temperature": 0, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": ` + url + `}}, ` + ask + `]}]` + more + `}`,
			`{"temperature": 0, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": ` + url + `, "detail": "low"}}, ` + ask + `]}]` + more + `}`,
			`{"temperature": 0, "mtp_depth": 0, "messages": [{"role": "user", "content": [{"type": "image", "image": ` + url + `}, ` + ask + `]}]` + more + `}`,
		},
		"/v1/responses": {`{"temperature": 0, "input": [{"role": "user", "content": [{"type": "input_image", "image_url": ` + url + `}, {"type": "input_text", "text": "What do you see?"}]}]` + more + `}`},
		"/v1/messages":  {`{"temperature": 0, "max_tokens": 40, "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ` + plain + `}}, ` + ask + `]}]` + more + `}`},
		"/api/chat":     {`{"options": {"temperature": 0}, "messages": [{"role": "user", "content": "What do you see?", "images": [` + plain + `]}]` + more + `}`},
		"/api/generate": {`{"options": {"temperature": 0}, "prompt": "What do you see?", "images": [` + plain + `]` + more + `}`},
	}
}

func TestPicturesAreSeen(t *testing.T) {
	r := start(t, nil)
	for path, list := range asked(t, `, "stream": false`) {
		for _, request := range list {
			if a := r.do("POST", path, request); a.status != 200 || !strings.Contains(a.body, `"`+seen+`"`) || a.header.Get("Foretoken-Ignored") != "" {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	}
	for path, list := range asked(t, `, "stream": true`) {
		if a := r.do("POST", path, list[0]); a.status != 200 || !strings.Contains(said(a.body), seen) {
			t.Errorf("%s, streamed: %d %s", path, a.status, a.body)
		}
	}
	if v := r.stats().Vision; v.Pictures != 1 { // the rest came from the prefix cache
		t.Errorf("the tower has looked at %d images", v.Pictures)
	}
	values, _ := r.scrape()
	if values[`foretoken_images_total{model_name="tiny"}`] != 1 || values[`foretoken_vision_seconds_total{model_name="tiny"}`] <= 0 {
		t.Errorf("metrics: %v", values)
	}
	if a := r.do("GET", "/v1/status", ""); !strings.Contains(a.body, `"vision":true,"images":1`) {
		t.Errorf("status: %s", a.body)
	}
	count := strings.Replace(asked(t, "")["/v1/messages"][0], `"max_tokens": 40, `, "", 1)
	if a := r.do("POST", "/v1/messages/count_tokens", count); !strings.Contains(a.body, `"input_tokens":29`) {
		t.Errorf("count: %s", a.body)
	}
	if err := r.Shutdown(t.Context()); err != nil { // after which all lines are written
		t.Fatal(err)
	}
	if log := r.log.String(); strings.Contains(log, base64.StdEncoding.EncodeToString(example(t))[:16]) || strings.Contains(log, "IHDR") {
		t.Error("the log has bytes of the image")
	}
}

// said is the text of a stream of any protocol: all strings of those names that have text.
func said(stream string) string {
	var text strings.Builder
	var find func(v any)
	find = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				find(x)
			}
		case object:
			for _, name := range []string{"content", "text", "delta", "response"} {
				if s, ok := v[name].(string); ok {
					text.WriteString(s)
				}
			}
			for _, x := range v {
				find(x)
			}
		}
	}
	for line := range strings.Lines(stream) {
		var v any
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &v) == nil {
			find(v)
		}
	}
	return text.String()
}

// TestConversationsKeepTheirPictures has a second turn, which sends the image again, and one that
// continues a stored response.
func TestConversationsKeepTheirPictures(t *testing.T) {
	r := start(t, nil)
	url := dataURL(example(t))
	var first struct{ ID string }
	a := r.do("POST", "/v1/responses", asked(t, "")["/v1/responses"][0])
	filetest.Decode(t, a.body, &first)
	again := r.do("POST", "/v1/responses", `{"temperature": 0, "max_output_tokens": 8, "previous_response_id": "`+first.ID+`", "input": "What do you see?"}`)
	whole := r.do("POST", chatPath, `{"temperature": 0, "max_tokens": 8, "messages": [
		{"role": "user", "content": [{"type": "image_url", "image_url": {"url": `+url+`}}, {"type": "text", "text": "What do you see?"}]},
		{"role": "assistant", "content": "`+seen+`"}, {"role": "user", "content": "What do you see?"}]}`)
	var x struct {
		Output []struct{ Content []struct{ Text string } }
	}
	var y struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal([]byte(again.body), &x); err != nil || again.status != 200 {
		t.Fatalf("%v: %s", err, again.body)
	}
	if err := json.Unmarshal([]byte(whole.body), &y); err != nil || whole.status != 200 {
		t.Fatalf("%v: %s", err, whole.body)
	}
	if got, want := x.Output[0].Content[0].Text, y.Choices[0].Message.Content; got != want {
		t.Errorf("continued: %q, sent again: %q", got, want)
	}
	if y.Usage.Details.Cached < 24 || r.stats().Vision.Pictures != 1 {
		t.Errorf("%d of %d tokens were cached, the tower has looked at %d images", y.Usage.Details.Cached, y.Usage.Prompt, r.stats().Vision.Pictures)
	}
}

// TestVideosAreSeen sends one as frames and as an animation, which the embedded model was not trained
// for: it answers something, the same for the same frames.
func TestVideosAreSeen(t *testing.T) {
	r := start(t, nil)
	url := dataURL(example(t))
	ask := func(video, more string) reply {
		return r.do("POST", chatPath, `{"temperature": 0, "max_tokens": 8, "messages": [{"role": "user", "content": [{"type": "video", "video": `+video+more+`}, {"type": "text", "text": "What do you see?"}]}]}`)
	}
	content := func(a reply) (string, float64) {
		v := decoded(t, a.body)
		choices, _ := at(v, "choices").([]any)
		tokens, _ := at(v, "usage", "prompt_tokens").(float64)
		if a.status != 200 || len(choices) != 1 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		text, _ := at(choices[0], "message", "content").(string)
		return text, tokens
	}
	first, short := content(ask(`[`+url+`, `+url+`]`, `, "fps": 2`))
	again, _ := content(ask(`[`+url+`, `+url+`]`, `, "fps": 2`))
	_, long := content(ask(`[`+url+`, `+url+`, `+url+`, `+url+`]`, `, "fps": 2`))
	if first == "" || first != again || long <= short {
		t.Errorf("%q, again %q; %v tokens of two frames, %v of four", first, again, short, long)
	}
	if a := ask(dataURL(encoded(t, "gif", 64, 48)), ""); a.status != 400 || !strings.Contains(a.body, "video of 1 frames, at least 2 are needed") {
		t.Errorf("an animation of one frame: %d %s", a.status, a.body)
	}
}

// TestPicturesAreFetched asks about an image of another server.
func TestPicturesAreFetched(t *testing.T) {
	picture := example(t)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/a.png" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(picture)
	}))
	t.Cleanup(site.Close)
	r := start(t, func(o *Options) { o.ImageHosts = []string{strings.TrimPrefix(site.URL, "http://")} })
	for path, request := range map[string]string{
		chatPath:       `{"temperature": 0, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "%s"}}, {"type": "text", "text": "What do you see?"}]}]}`,
		"/v1/messages": `{"temperature": 0, "max_tokens": 40, "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "%s"}}, {"type": "text", "text": "What do you see?"}]}]}`,
	} {
		if a := r.do("POST", path, fmt.Sprintf(request, site.URL+"/a.png")); a.status != 200 || !strings.Contains(a.body, seen) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
		a := r.do("POST", path, fmt.Sprintf(request, site.URL+"/missing.png"))
		if a.status != 400 || !strings.Contains(a.body, "url: the image could not be fetched from ") || !strings.Contains(a.body, "it answered with status 404") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	values, _ := r.scrape()
	if values[`foretoken_image_fetches_total{result="ok"}`] != 2 || values[`foretoken_image_fetches_total{result="error"}`] != 2 || values["foretoken_image_fetched_bytes_total"] != float64(2*len(picture)) {
		t.Errorf("metrics: %v", values)
	}
	if _, err := New(Options{Models: []Model{tiny()}, ImageHosts: []string{"https://example.org"}}); err == nil || !strings.Contains(err.Error(), "hosts of images") {
		t.Errorf("a URL as a host: %v", err)
	}
}

// pngOf is a PNG file of any size with compressed pixels, enough of them or not.
func pngOf(width, height uint32, pixels []byte) []byte {
	chunk := func(kind string, data []byte) []byte {
		out := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
		out = append(append(out, kind...), data...)
		return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[4:]))
	}
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, width), height)
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	_, _ = z.Write(pixels) // to memory
	_ = z.Close()
	out := append([]byte("\x89PNG\r\n\x1a\n"), chunk("IHDR", append(head, 8, 0, 0, 0, 0))...)
	return append(append(out, chunk("IDAT", packed.Bytes())...), chunk("IEND", nil)...)
}

// encoded is a gray image in a format.
func encoded(t testing.TB, format string, width, height int) []byte {
	t.Helper()
	m := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.Gray{128}, color.White})
	var b bytes.Buffer
	var err error
	switch format {
	case "png":
		err = png.Encode(&b, m)
	case "jpeg":
		err = jpeg.Encode(&b, m, nil)
	case "gif":
		err = gif.Encode(&b, m, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
