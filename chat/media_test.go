package chat

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// named opens files whose content is their name.
func named(name string) ([]byte, error) {
	if strings.Contains(name, "absent") {
		return nil, errors.New(name + ": no such file")
	}
	return []byte(name), nil
}

func decodeParts(parts string) (Content, error) {
	messages, err := DecodeMessages([]byte(`[{"role": "user", "content": [`+parts+`]}]`), named)
	if err != nil {
		return Content{}, err
	}
	return messages[0].Content, nil
}

func TestDecodeMessagesWithOpensWhatPartsName(t *testing.T) {
	for parts, want := range map[string]Media{
		`{"type": "image_url", "image_url": {"url": "a"}}`:                                                         {},
		`{"type": "image_url", "image_url": {"url": "a", "detail": "low"}}`:                                        {MaxPixels: 512 * 512},
		`{"type": "image_url", "image_url": {"url": "a", "detail": "high"}, "max_pixels": 9}`:                      {MaxPixels: 9},
		`{"type": "image_url", "image_url": "a"}`:                                                                  {},
		`{"type": "input_image", "image_url": "a"}`:                                                                {},
		`{"type": "image", "image": "a"}`:                                                                          {},
		`{"type": "image", "image": null, "url": "a"}`:                                                             {},
		`{"type": "image", "path": "a"}`:                                                                           {},
		`{"type": "image", "source": {"type": "url", "url": "a"}}`:                                                 {},
		`{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "YQ=="}}`:               {Files: [][]byte{[]byte("data:image/png;base64,YQ==")}},
		`{"type": "other", "image": "a"}`:                                                                          {},
		`{"type": "video", "video": "a", "fps": 2.5}`:                                                              {Video: true, Rate: 2.5},
		`{"type": "video_url", "video_url": {"url": "a"}}`:                                                         {Video: true},
		`{"type": "video", "video": ["a", {"url": "b"}, {"path": "c"}], "fps": 1, "max_pixels": 4096}`:             {Video: true, Rate: 1, MaxPixels: 4096, Files: [][]byte{[]byte("a"), []byte("b"), []byte("c")}},
		`{"type": "text", "text": "1"}, {"type": "image", "image": "a"}, {"type": "text", "text": "2"}`:            {},
		`{"type": "image", "image": "a", "max_pixels": 1e300, "fps": null}`:                                        {MaxPixels: 1<<31 - 1},
		`{"type": "input_audio", "input_audio": {"data": "x"}}, {"type": "image", "image": "a", "min_pixels": 16}`: {},
	} {
		c, err := decodeParts(parts)
		if err != nil || len(c.Media()) != 1 {
			t.Errorf("%s: %v, %d files", parts, err, len(c.Media()))
			continue
		}
		if want.Files == nil {
			want.Files = [][]byte{[]byte("a")}
		}
		got := *c.Media()[0]
		if got.Video != want.Video || got.Rate != want.Rate || got.MaxPixels != want.MaxPixels || !slices.EqualFunc(got.Files, want.Files, slices.Equal) {
			t.Errorf("%s: %+v, want %+v", parts, got, want)
		}
		if _, ok := c.Text(); ok {
			t.Errorf("%s: an image became text", parts)
		}
	}
}

func TestDecodeMessagesWithSaysWhatIsWrong(t *testing.T) {
	for parts, want := range map[string]string{
		`{"type": "text", "text": "a"}, {"type": "image"}`:  `messages[0]: 'content[1]': the part has no file: want its path or URL in 'image'`,
		`{"type": "image", "image": 5}`:                     `'content[0]': 'image' must be the path or URL of an image`,
		`{"type": "image", "image": ["a"]}`:                 `'image' must be the path or URL of an image`,
		`{"type": "image_url", "image_url": {}}`:            `'image_url' must be the path or URL of an image`,
		`{"type": "video", "video": []}`:                    `'video' must be the path or URL of an animation, or a list`,
		`{"type": "video", "video": ["a", 5]}`:              `'video[1]' must be the path or URL of a frame`,
		`{"type": "video", "video": "a", "fps": 0}`:         `'fps' must be a number above 0`,
		`{"type": "video", "video": "a", "fps": "2"}`:       `'fps' must be a number above 0`,
		`{"type": "image", "image": "a", "max_pixels": -1}`: `'max_pixels' must be a number above 0`,
		`{"type": "image", "image": "absent.png"}`:          `'content[0]': absent.png: no such file`,
	} {
		_, err := decodeParts(parts)
		if err == nil || !strings.HasPrefix(err.Error(), "chat: messages") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", parts, err, want)
		}
	}
}
