package chat

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/foretoken/foretoken/internal/jinja"
)

// Part is a piece of a message: a text, or an image or video in its place.
type Part struct {
	Text  string
	Media *Media // nil: the part is Text
}

// Media is an image or a video as received: nothing of it has been decoded or checked.
type Media struct {
	// Files is the encoded image, or the frames of a video in their order. A single animation
	// is a whole video.
	Files [][]byte
	Video bool
	// Rate is the frames per second of a video; 0: that of the animation, or 24.
	Rate float64
	// MaxPixels is the maximum number of pixels of an image after resizing, if that is less than the model's
	// limit; 0: the model's.
	MaxPixels int
}

// Parts returns a content of several parts.
func Parts(list ...Part) Content {
	var c Content
	items := make([]jinja.Value, len(list))
	for i, p := range list {
		if p.Media != nil {
			c.media = append(c.media, p.Media)
			items[i] = p.Media.value()
			continue
		}
		m := &jinja.Map{}
		m.Set("type", jinja.String("text"))
		m.Set("text", jinja.String(p.Text))
		items[i] = jinja.Dict(m)
	}
	c.value = jinja.List(items)
	return c
}

// value is the part that templates see.
func (m *Media) value() jinja.Value {
	part := &jinja.Map{}
	part.Set("type", jinja.String("image"))
	if m.Video {
		part.Set("type", jinja.String("video"))
	}
	return jinja.Dict(part)
}

// Media lists the images and videos in the content, in their order.
func (c Content) Media() []*Media { return c.media }

// opener returns the file that a part of a message names.
type opener func(name string) ([]byte, error)

// lowDetail is the maximum number of pixels of an image whose detail is low.
const lowDetail = 512 * 512

// partsFrom reads the images and videos among the parts of a message. Other parts are not
// changed.
func partsFrom(parts []jinja.Value, open opener) (c Content, err error) {
	items := make([]jinja.Value, len(parts))
	for i, part := range parts {
		m, err := mediaFrom(part.Map(), open)
		switch {
		case err != nil:
			return Content{}, fmt.Errorf("'content[%d]': %w", i, err)
		case m == nil:
			items[i] = part
		default:
			c.media = append(c.media, m)
			items[i] = m.value()
		}
	}
	c.value = jinja.List(items)
	return c, nil
}

// mediaFrom is the image or video of a part; nil: it is neither, by the tests of templates.
func mediaFrom(part *jinja.Map, open opener) (*Media, error) {
	kind := ""
	for _, name := range []string{"image", "video"} {
		_, plain := part.Get(name)
		_, url := part.Get(name + "_url")
		if t := field(part, "type"); plain || url || t == name || t == name+"_url" || t == "input_"+name {
			kind = name
			break
		}
	}
	if kind == "" {
		return nil, nil
	}
	m := &Media{Video: kind == "video"}
	names, err := namesFrom(part, kind, m)
	if err != nil {
		return nil, err
	}
	if m.Rate, err = positive(part, "fps"); err != nil {
		return nil, err
	}
	pixels, err := positive(part, "max_pixels")
	if err != nil {
		return nil, err
	}
	if pixels > 0 {
		m.MaxPixels = int(min(max(pixels, 1), math.MaxInt32))
	}
	for _, name := range names {
		file, err := open(name)
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, file)
	}
	return m, nil
}

// namesFrom lists the names of the files of m, which part has under one of the spellings.
func namesFrom(part *jinja.Map, kind string, m *Media) ([]string, error) {
	for _, key := range []string{kind, kind + "_url", "source", "url", "path"} {
		v, _ := part.Get(key)
		switch v.Kind() {
		case jinja.KindUndefined, jinja.KindNone:
			continue
		case jinja.KindList:
			if !m.Video || len(v.Items()) == 0 {
				break
			}
			names := make([]string, len(v.Items()))
			for i, item := range v.Items() {
				if names[i] = nameFrom(item); names[i] == "" {
					return nil, fmt.Errorf("'%s[%d]' must be the path or URL of a frame", key, i)
				}
			}
			return names, nil
		default:
			if detail, _ := v.Map().Get("detail"); !m.Video && text(detail) == "low" {
				m.MaxPixels = lowDetail
			}
			if name := nameFrom(v); name != "" {
				return []string{name}, nil
			}
		}
		if m.Video {
			return nil, fmt.Errorf("'%s' must be the path or URL of an animation, or a list of paths or URLs of frames", key)
		}
		return nil, fmt.Errorf("'%s' must be the path or URL of an image", key)
	}
	return nil, errors.New("the part has no file: want its path or URL in '" + kind + "'")
}

// nameFrom is the path or URL that v is or has, "" if it has none. Base64 becomes a data: URL.
func nameFrom(v jinja.Value) string {
	if v.Kind() != jinja.KindMap {
		return text(v)
	}
	if data := field(v.Map(), "data"); data != "" {
		return "data:" + field(v.Map(), "media_type") + ";base64," + data
	}
	for _, key := range []string{"url", "path"} {
		if name := field(v.Map(), key); name != "" {
			return name
		}
	}
	return ""
}

// field is the text under a key, "" if there is none.
func field(m *jinja.Map, key string) string {
	v, _ := m.Get(key)
	return text(v)
}

// text is the text of v, "" if it is not a text.
func text(v jinja.Value) string {
	s, _ := v.Text()
	return s
}

// positive is the number under a key, 0 if there is none.
func positive(m *jinja.Map, key string) (float64, error) {
	v, _ := m.Get(key)
	if v.Kind() == jinja.KindUndefined || v.Kind() == jinja.KindNone {
		return 0, nil
	}
	number, err := jinja.AppendJSON(nil, v)
	if err == nil {
		var x float64
		if x, err = strconv.ParseFloat(string(number), 64); err == nil && x > 0 && x <= math.MaxFloat64 {
			return x, nil
		}
	}
	return 0, fmt.Errorf("'%s' must be a number above 0", key)
}
