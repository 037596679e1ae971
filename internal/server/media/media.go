// Package media reads the images and videos of requests: out of data: URLs and base64, bounded
// before they are decoded. Package generate fetches those on other machines. It
// knows neither protocols nor the contents of an image.
package media

import (
	"bytes"
	"net/url"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// LowDetail is the maximum number of pixels of an image whose detail is low.
const LowDetail = 512 * 512

// maxURL bounds a URL that is to be fetched.
const maxURL = 8 << 10

// Picture reads the URL of an image of q.
func Picture(q *generate.Request, v *body.Value) *chat.Media {
	m := newMedia(q, v, 1)
	file(q, v, m, 0)
	return m
}

// Base64 reads the base64 of an image of q, or its URL, which some programs write in its place.
func Base64(q *generate.Request, v *body.Value) *chat.Media {
	m := newMedia(q, v, 1)
	switch text := v.Bytes(); {
	case text == nil:
		v.Required()
	case scheme(text) != "":
		file(q, v, m, 0)
	default:
		m.Files[0] = read(v, text, fromBase64)
	}
	return m
}

// Video reads the URLs of a video's frames, or the one of an animation.
func Video(q *generate.Request, v *body.Value) *chat.Media {
	if v.IsText() {
		m := Picture(q, v)
		m.Video = true
		return m
	}
	n := v.Len()
	if n == 0 {
		v.Fault("want a list of URLs of frames, or the URL of an animation")
	}
	m := newMedia(q, v, min(n, body.MaxValues))
	m.Video = true
	for i, f := range v.List() {
		file(q, f, m, i)
	}
	return m
}

func newMedia(q *generate.Request, v *body.Value, files int) *chat.Media {
	q.Media = append(q.Media, v.Path())
	return &chat.Media{Files: make([][]byte, files)}
}

// file reads the URL of file i of m.
func file(q *generate.Request, v *body.Value, m *chat.Media, i int) {
	if v.Absent() || !v.IsText() {
		v.Fault("want the URL of an image, as a string")
		return
	}
	text := v.Bytes()
	switch s := scheme(text); s {
	case "data":
		m.Files[i] = read(v, text[len("data:"):], FromDataURL)
	case "http", "https":
		u, err := url.Parse(string(text[:min(len(text), maxURL+1)]))
		if len(text) > maxURL || err != nil || u.Host == "" || u.Opaque != "" {
			v.Fault("the URL cannot be fetched: want https://HOST/PATH, or a data: URL")
			return
		}
		q.Remote = append(q.Remote, generate.Remote{Param: v.Path(), URL: u, To: &m.Files[i]})
	case "":
		v.Fault("want a data: URL, as data:image/png;base64, with the image, or an http or https URL")
	default:
		v.Fault("URLs of scheme %.20q are not supported: send the image as a data: URL", s)
	}
}

// read decodes the text of v.
func read(v *body.Value, text []byte, decode func([]byte) ([]byte, error)) []byte {
	data, err := decode(text)
	if err != nil {
		v.Fault("%v", err)
	}
	return data
}

// scheme is the scheme of a URL in lower case; "": it is not a URL.
func scheme(text []byte) string {
	at := bytes.IndexByte(text[:min(len(text), 32)], ':')
	if at < 2 { // a letter and a colon is a path of Windows
		return ""
	}
	name := strings.ToLower(string(text[:at]))
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789+-.") != "" {
		return ""
	}
	return name
}

// Parts collects the parts of a message. The zero value has none.
type Parts struct {
	Between string // is set between texts that follow each other
	list    []part
}

// part is a text, or an image or video.
type part struct {
	text  []byte
	media *chat.Media
}

// Text adds a text.
func (p *Parts) Text(text string) {
	if text == "" {
		return
	}
	if n := len(p.list); n > 0 && p.list[n-1].media == nil {
		p.list[n-1].text = append(append(p.list[n-1].text, p.Between...), text...)
		return
	}
	p.list = append(p.list, part{text: []byte(text)})
}

// Media adds an image or a video.
func (p *Parts) Media(m *chat.Media) { p.list = append(p.list, part{media: m}) }

// Content is the content that the parts make: one text, where there is nothing else.
func (p *Parts) Content() chat.Content {
	if len(p.list) == 0 {
		return chat.Text("")
	}
	if len(p.list) == 1 && p.list[0].media == nil {
		return chat.Text(string(p.list[0].text))
	}
	list := make([]chat.Part, len(p.list))
	for i, x := range p.list {
		list[i] = chat.Part{Text: string(x.text), Media: x.media}
	}
	return chat.Parts(list...)
}
