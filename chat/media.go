package chat

import "github.com/foretoken/foretoken/internal/jinja"

// Part is a piece of a message: a text, or a picture or video in its place.
type Part struct {
	Text  string
	Media *Media // nil: the part is Text
}

// Media is a picture or a video as it was sent: nothing of it has been decoded or checked.
type Media struct {
	// Files is the encoded picture, or the frames of a video in their order. One file that is an
	// animation is a video by itself.
	Files [][]byte
	Video bool
	// Rate is the frames per second of a video; 0: what the animation says, or 24.
	Rate float64
	// MaxPixels is the most that are left of a picture, where that is less than the model's own
	// limit; 0: the model's.
	MaxPixels int
}

// Parts returns a content of several parts.
func Parts(list ...Part) Content {
	var c Content
	items := make([]jinja.Value, len(list))
	for i, p := range list {
		m := &jinja.Map{}
		switch {
		case p.Media == nil:
			m.Set("type", jinja.String("text"))
			m.Set("text", jinja.String(p.Text))
		case p.Media.Video:
			m.Set("type", jinja.String("video"))
		default:
			m.Set("type", jinja.String("image"))
		}
		if p.Media != nil {
			c.media = append(c.media, p.Media)
		}
		items[i] = jinja.Dict(m)
	}
	c.value = jinja.List(items)
	return c
}

// Media lists the pictures and videos in the content, in their order.
func (c Content) Media() []*Media { return c.media }
