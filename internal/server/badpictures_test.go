package server

import (
	"bytes"
	"encoding/base64"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// badPicture is a request with an unusable image. docs/server-api.md has, under the same
// words, its status and message.
type badPicture struct{ what, path, body string }

// show is a chat about an image with that URL, which is JSON.
func show(url string) string {
	return `{"messages": [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": ` + url + `}}]}]}`
}

// part is a chat with a part of a message.
func part(role, part string) string {
	return `{"messages": [{"role": "` + role + `", "content": [` + part + `]}]}`
}

// frames is a chat with a video.
func frames(list ...[]byte) string {
	urls := make([]string, len(list))
	for i, data := range list {
		urls[i] = dataURL(data)
	}
	return part("user", `{"type": "video", "video": [`+strings.Join(urls, ", ")+`]}`)
}

// message is a request of Anthropic's with a block.
func message(block string) string {
	return `{"max_tokens": 4, "messages": [{"role": "user", "content": [` + block + `]}]}`
}

func badPictures(t testing.TB) []badPicture {
	t.Helper()
	good, photo, animation := encoded(t, "png", 64, 48), encoded(t, "jpeg", 64, 48), encoded(t, "gif", 64, 48)
	const url = "data:image/png;base64,"
	file := func(what string, data []byte) badPicture { return badPicture{what, chatPath, show(dataURL(data))} }
	sent := func(what, text string) badPicture { return badPicture{what, chatPath, show(`"` + text + `"`)} }
	plain := base64.StdEncoding.EncodeToString
	many := strings.TrimSuffix(strings.Repeat(`{"type": "image_url", "image_url": `+dataURL(good)+`}, `, 33), ", ")
	return []badPicture{
		// Files.
		file("text in place of an image", []byte("a picture of a cat")),
		file("a page of HTML", []byte("<html><body>404</body></html>")),
		file("a PDF", []byte("%PDF-1.7 and so on")),
		file("an SVG", []byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`)),
		file("a BMP", []byte("BM and so on and so on")),
		file("a TIFF", []byte("II*\x00 and so on and so on")),
		file("a HEIC photo", []byte("\x00\x00\x00\x18ftypheic and so on")),
		file("an AVIF image", []byte("\x00\x00\x00\x18ftypavif and so on")),
		file("a PNG that ends early", good[:len(good)-20]),
		file("a PNG with only its first bytes", good[:8]),
		file("a PNG with a changed byte", append(append(bytes.Clone(good[:45]), good[45]^1), good[46:]...)),
		file("a PNG of 60,000 × 60,000", pngOf(60_000, 60_000, nil)),
		file("a PNG of 2³¹ × 2³¹", pngOf(1<<31, 1<<31, nil)),
		file("a PNG of 0 × 0", pngOf(0, 0, nil)),
		file("a PNG that declares more than it holds", pngOf(2000, 2000, make([]byte, 100))),
		file("a PNG that unpacks to 64 MB (a bomb)", pngOf(16, 16, make([]byte, 64<<20))),
		file("a PNG of 4000 × 10", encoded(t, "png", 4000, 10)),
		file("a JPEG that ends early", photo[:len(photo)/2]),
		file("a JPEG without an image", photo[:20]),
		file("a WebP that ends early", []byte("RIFF\x40\x00\x00\x00WEBPVP8 ")),
		file("a GIF without a frame", []byte("GIF89a\x01\x00\x01\x00\x00\x00\x00;")),
		file("a GIF that ends early", animation[:20]),
		// URLs.
		sent("a data: URL without data", url),
		sent("a data: URL without a comma", "data:image/png;base64"),
		sent("base64 with a foreign character", url+"iVBOR!!!"),
		sent("base64 that lacks a character", url+"iVBOR"),
		sent("text as a data: URL", "data:text/html;base64,PGI+"),
		sent("a film as a data: URL", "data:video/mp4;base64,AAAA"),
		sent("base64 without data:", plain(good)),
		sent("the path of a file", "/etc/passwd"),
		sent("a file: URL", "file:///etc/passwd"),
		sent("an https URL without --allow-image-urls", "https://example.org/a.png?token=secret"),
		sent("a cloud's address for secrets", "http://169.254.169.254/latest/meta-data"),
		// Requests.
		{"a number as URL", chatPath, show("5")},
		{"no URL", chatPath, part("user", `{"type": "image_url"}`)},
		{"an unknown detail", chatPath, part("user", `{"type": "image_url", "image_url": {"url": `+dataURL(good)+`, "detail": "fine"}}`)},
		{"an image in a system message", chatPath, part("system", `{"type": "image_url", "image_url": `+dataURL(good)+`}`)},
		{"33 images", chatPath, part("user", many)},
		{"a video of one frame", chatPath, frames(good)},
		{"a video of no frames", chatPath, frames()},
		{"a video of frames of different sizes", chatPath, frames(good, encoded(t, "png", 48, 64))},
		{"a video with 0 frames per second", chatPath, part("user", `{"type": "video", "video": [`+dataURL(good)+`], "fps": 0}`)},
		{"a video that is one PNG", chatPath, part("user", `{"type": "video", "video": `+dataURL(good)+`}`)},
		{"a sound", chatPath, part("user", `{"type": "input_audio", "input_audio": {}}`)},
		{"the id of a file", "/v1/responses", `{"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}]}`},
		{"an image with an unsupported type", "/v1/messages", message(`{"type": "image", "source": {"type": "base64", "media_type": "text/html", "data": "` + plain(good) + `"}}`)},
		{"the id of a file, Anthropic", "/v1/messages", message(`{"type": "image", "source": {"type": "file", "file_id": "x"}}`)},
		{"an image in system, Anthropic", "/v1/messages", `{"max_tokens": 4, "system": [{"type": "image"}], "messages": [{"role": "user", "content": "Hi."}]}`},
		{"text as images, Ollama", "/api/chat", `{"messages": [{"role": "user", "content": "Hi.", "images": "` + plain(good) + `"}]}`},
		{"a broken image, Ollama", "/api/generate", `{"prompt": "Hi.", "images": ["` + plain(good) + `", "` + plain([]byte("no")) + `"]}`},
		{"an image for a raw prompt, Ollama", "/api/generate", `{"prompt": "Hi.", "raw": true, "images": ["` + plain(good) + `"]}`},
	}
}

// documentedPictures are the rows of the table of unusable images: status and message by
// input.
func documentedPictures(t testing.TB) map[string][2]string {
	t.Helper()
	text := filetest.Read(t, "../../docs/server-api.md")
	_, table, _ := strings.Cut(string(text), "| what is sent | status | message |\n|---|---|---|\n")
	rows := map[string][2]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != 3 {
			break
		}
		rows[cells[0]] = [2]string{cells[1], strings.Trim(cells[2], "`")}
	}
	return rows
}

// complaint is the message of an error in any protocol, with the path of the field before it, if it
// is about one.
func complaint(t *testing.T, body string) (path, message string) {
	t.Helper()
	v := decoded(t, body)
	message, ok := at(v, "error", "message").(string)
	if !ok {
		message, _ = at(v, "error").(string)
	}
	for _, field := range []string{"messages[", "input[", "system[", "images"} {
		if before, after, ok := strings.Cut(message, ": "); ok && strings.HasPrefix(before, field) {
			return before, after
		}
	}
	return "", message
}

// TestBadPictures sends bad images, and checks that the error is right, that it costs little, and that
// no memory is left allocated.
func TestBadPictures(t *testing.T) {
	r := start(t, nil)
	rows := documentedPictures(t)
	list := badPictures(t)
	if len(list) < 40 || len(rows) != len(list) {
		t.Errorf("%d bad images, and docs/server-api.md has %d", len(list), len(rows))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	sent := 0
	for _, x := range list {
		sent += len(x.body)
		a := r.do("POST", x.path, x.body)
		path, message := complaint(t, a.body)
		if want := [2]string{strconv.Itoa(a.status), message}; rows[x.what] != want || path == "" {
			t.Errorf("%s, in %q\n\tgot  | %s | %d | `%s` |\n\twant %q", x.what, path, x.what, a.status, message, rows[x.what])
		}
		if strings.Contains(a.body, ".go:") || strings.Contains(a.body, "goroutine") || strings.Contains(a.body, "secret") {
			t.Errorf("%s: %s", x.what, a.body)
		}
	}
	runtime.ReadMemStats(&after)
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 32<<20 {
		t.Errorf("%d bytes were allocated for requests of %d", spent, sent)
	}
	if v := r.stats(); !r.idle() || v.Vision.Pictures > 0 {
		t.Errorf("something runs, or was looked at: %+v", v)
	}
	if a := r.do("POST", chatPath, asked(t, "")[chatPath][0]); !strings.Contains(a.body, seen) {
		t.Errorf("after all that: %+v", a)
	}
}

// TestModelsWithoutVision refuse images in every protocol, and take text.
func TestModelsWithoutVision(t *testing.T) {
	r := start(t, func(o *Options) {
		o.Models[0].Options.Vision.Off = true
		o.ImageHosts = []string{"*"}
	})
	for path, list := range asked(t, "") {
		for _, request := range append(list, strings.Replace(list[0], dataURL(example(t)), `"https://example.org/a.png"`, 1)) {
			a := r.do("POST", path, request)
			if at, message := complaint(t, a.body); a.status != 400 || !strings.Contains(message, "this model does not accept images") || at == "" {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	}
	if a := r.do("POST", chatPath, hello); a.status != 200 {
		t.Errorf("text: %+v", a)
	}
	if a := r.do("GET", "/v1/models", ""); !strings.Contains(a.body, `"input_modalities":["text"]`) || strings.Contains(a.body, "vision") {
		t.Errorf("models: %s", a.body)
	}
	if a := r.do("POST", "/api/show", `{"model": "tiny"}`); strings.Contains(a.body, `"vision"`) {
		t.Errorf("show: %s", a.body)
	}
}
