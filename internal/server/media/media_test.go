package media

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// value is the value of a string in a request.
func value(text string) *body.Value {
	return body.Parse(fmt.Appendf(nil, `{"url": %q}`, text)).Field("url")
}

// TestDataURLs reads every form in which programs write an image.
func TestDataURLs(t *testing.T) {
	picture := []byte("\x89PNG\r\n\x1a\n+/~ and some more")
	std := base64.StdEncoding.EncodeToString(picture)
	broken := std[:5] + "\r\n" + std[5:9] + "\n" + std[9:]
	for _, text := range []string{
		"data:image/png;base64," + std,
		"DATA:IMAGE/PNG;BASE64," + std,
		"data:;base64," + std,
		"data:image/jpeg;charset=utf-8;base64," + std, // its format is found by its bytes
		"data:image/png; base64 ," + std,
		"data:application/octet-stream;base64," + std,
		"data:image/png;base64," + strings.TrimRight(std, "="),
		"data:image/png;base64," + broken,
		"data:image/png;base64," + broken + "\r\n",
		"data:image/png;base64, " + std[:4] + " \t" + std[4:] + " ",
		"data:image/png;base64," + base64.URLEncoding.EncodeToString(picture),
		"data:image/png;base64," + base64.RawURLEncoding.EncodeToString(picture),
		"data:image/png;base64," + url.QueryEscape(std),
		"data:image/png," + url.PathEscape(string(picture)),
		"data:," + strings.ReplaceAll(url.PathEscape(string(picture)), "A", "a"),
	} {
		q := &generate.Request{}
		v := value(text)
		m := Picture(q, v)
		if !bytes.Equal(m.Files[0], picture) || v.Err() != nil || len(q.Remote) > 0 || len(q.Media) != 1 || q.Media[0] != "url" {
			t.Errorf("%q: %q, %v, of %q", text, m.Files[0], v.Err(), q.Media)
		}
	}
	for _, text := range []string{std, broken, strings.TrimRight(std, "="), "data:image/png;base64," + std} {
		v := value(text)
		if m := Base64(&generate.Request{}, v); !bytes.Equal(m.Files[0], picture) || v.Err() != nil {
			t.Errorf("%q: %q, %v", text, m.Files[0], v.Err())
		}
	}
}

func TestBadURLs(t *testing.T) {
	for text, want := range map[string]string{
		"data:":                 "the data: URL has no comma, want data:image/png;base64, and the image",
		"data:image/png;base64": "the data: URL has no comma, want data:image/png;base64, and the image",
		"data:" + strings.Repeat("x", 1<<11) + ",": "the data: URL has no comma, want data:image/png;base64, and the image",
		"data:image/png;base64,":                   "the image has no bytes",
		"data:image/png;base64,====":               "the image has no bytes",
		"data:,":                                   "the image has no bytes",
		"data:image/png;base64,!!!!":               "the data is not base64",
		"data:image/png;base64,AAAAA":              "the data is not base64",
		"data:image/png;base64,AA=A":               "the data is not base64",
		"data:image/png;base64,AA%4":               "the data: URL ends within a % escape",
		"data:image/png,%zz":                       "the data: URL has a % without two hexadecimal digits",
		"data:text/html;base64,AAAA":               `data of type "text/html", want the type of an image, such as image/png`,
		"data:text/plain,hello":                    `data of type "text/plain", want the type of an image, such as image/png`,
		"data:video/mp4;base64,AAAA":               `data of type "video/mp4" is not supported: send a video as a list of frames or as an animated GIF`,
		"data:base64,AAAA":                         `data of type "base64", want the type of an image, such as image/png`,
		"":                                         "want a data: URL, as data:image/png;base64, with the image, or an http or https URL",
		"iVBORw0KGgo=":                             "want a data: URL, as data:image/png;base64, with the image, or an http or https URL",
		"/etc/passwd":                              "want a data: URL, as data:image/png;base64, with the image, or an http or https URL",
		`C:\picture.png`:                           "want a data: URL, as data:image/png;base64, with the image, or an http or https URL",
		"file:///etc/passwd":                       `URLs of scheme "file" are not supported: send the image as a data: URL`,
		"blob:https://a/b":                         `URLs of scheme "blob" are not supported: send the image as a data: URL`,
		"ftp://example.org/a.png":                  `URLs of scheme "ftp" are not supported: send the image as a data: URL`,
		"http:example.org/a.png":                   "the URL cannot be fetched: want https://HOST/PATH, or a data: URL",
		"https://":                                 "the URL cannot be fetched: want https://HOST/PATH, or a data: URL",
		"https://a b/":                             "the URL cannot be fetched: want https://HOST/PATH, or a data: URL",
		"https://a/" + strings.Repeat("x", 1<<13):  "the URL cannot be fetched: want https://HOST/PATH, or a data: URL",
	} {
		q := &generate.Request{}
		v := value(text)
		if m := Picture(q, v); v.Err() == nil || v.Err().Error() != "url: "+want || m.Files[0] != nil || len(q.Remote) > 0 {
			t.Errorf("%.60q: %v, want %s", text, v.Err(), want)
		}
	}
}

// TestTooLargeIsNotDecoded refuses by the length of the text.
func TestTooLargeIsNotDecoded(t *testing.T) {
	long := make([]byte, 3*maxBytes+2)
	long[0] = ','
	for name, decode := range map[string]func([]byte) ([]byte, error){
		"base64":   fromBase64,
		"data URL": FromDataURL,
	} {
		if data, err := decode(long); err != errTooLarge || data != nil { //nolint:errorlint // handed through
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
}

func TestRemoteFilesAreLeftToFetch(t *testing.T) {
	q := &generate.Request{}
	v := body.Parse([]byte(`{"a": "HTTPS://example.org/x.png", "frames": ["http://h:81/1", "data:,x", "http://h/3"]}`))
	one, video := Picture(q, v.Field("a")), Video(q, v.Field("frames"))
	if err := v.Err(); err != nil {
		t.Fatal(err)
	}
	for i := range q.Remote {
		*q.Remote[i].To = []byte(q.Remote[i].Param + " " + q.Remote[i].URL.String())
	}
	if got, want := fmt.Sprintf("%q %q %v %q", one.Files, video.Files, video.Video, q.Media), `["a https://example.org/x.png"] ["frames[0] http://h:81/1" "x" "frames[2] http://h/3"] true ["a" "frames"]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestParts(t *testing.T) {
	p := Parts{Between: "|"}
	if text, ok := p.Content().Text(); text != "" || !ok {
		t.Errorf("nothing: %q", text)
	}
	p.Text("a")
	p.Text("")
	p.Text("b")
	if text, ok := p.Content().Text(); text != "a|b" || !ok {
		t.Errorf("texts: %q", text)
	}
	m := Base64(&generate.Request{}, value("aGk="))
	p.Media(m)
	p.Text("c")
	if _, ok := p.Content().Text(); ok || len(p.Content().Media()) != 1 || p.Content().Media()[0] != m {
		t.Errorf("with an image: %v", p.Content().Media())
	}
}

// FuzzDataURL checks that errors show nothing of
// the data, and that the result equals that of base64.
func FuzzDataURL(f *testing.F) {
	for _, text := range []string{"image/png;base64,iVBORw0KGgo=", ",%41", ";base64,AA\r\nAA", "image/png;base64,-_-_", "x", "text/html,%", ";;base64;base64,AAAA"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		data, err := FromDataURL(text)
		if !bytes.Equal(text, before) {
			t.Fatal("the text was changed")
		}
		if err != nil {
			if data != nil || len(err.Error()) > 300 {
				t.Errorf("%d bytes with %v", len(data), err)
			}
			return
		}
		if len(data) == 0 || len(data) > len(text) {
			t.Fatalf("%d bytes of %d", len(data), len(text))
		}
		again, err := FromDataURL([]byte("image/png;base64," + base64.StdEncoding.EncodeToString(data)))
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("%q became %q: %v", data, again, err)
		}
	})
}
