package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	pixels "image"
	"image/color/palette"
	"image/draw"
	"image/gif"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// Images that the embedded model knows, and what it says of them.
const (
	houseAndHeart = "../../examples/pictures/house-and-heart.png"
	starAndBall   = "../../examples/pictures/star-and-ball.png"

	saysHouse = "There is a pink house and a black heart."
	saysStar  = "There is a yellow star and a pink ball."
)

// animation is a GIF that shows an image for two frames of half a second.
func animation(t *testing.T, path string) []byte {
	t.Helper()
	m, err := png.Decode(bytes.NewReader(filetest.Read(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	frame := pixels.NewPaletted(m.Bounds(), palette.Plan9)
	draw.Draw(frame, frame.Rect, m, pixels.Point{}, draw.Src)
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, &gif.GIF{Image: []*pixels.Paletted{frame, frame}, Delay: []int{50, 50}}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestCommandsAnswerAboutPictures asks in every way there is but the chat.
func TestCommandsAnswerAboutPictures(t *testing.T) {
	dir := t.TempDir()
	frames := filepath.Join(dir, "frames")
	if err := os.Mkdir(frames, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		filetest.Write(t, filepath.Join(frames, fmt.Sprintf("%d.PNG", i)), filetest.Read(t, houseAndHeart))
	}
	filetest.Write(t, filepath.Join(frames, "notes.txt"), "no frame")
	filetest.Write(t, filepath.Join(dir, "moving.gif"), animation(t, starAndBall))
	messages := func(parts ...any) string {
		data := filetest.Encode(t, []any{map[string]any{"role": "user", "content": parts}})
		path := filepath.Join(dir, fmt.Sprintf("%d.json", len(data)))
		filetest.Write(t, path, data)
		return path
	}
	type object = map[string]any
	question := object{"type": "text", "text": "What do you see?"}
	inline := "data:image/png;base64," + base64.StdEncoding.EncodeToString(filetest.Read(t, starAndBall))
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"run", saysHouse, []string{"run", "--image", houseAndHeart, "What do you see?"}},
		{"without a question", saysStar, []string{"run", "--image", starAndBall}},
		{"generate", saysStar, []string{"generate", "--image", starAndBall, "--prompt", "What do you see?"}},
		{"generate without a question", saysStar, []string{"generate", "--image", starAndBall}},
		{"without drafts", saysHouse, []string{"run", "--mtp=off", "--image", houseAndHeart, "What do you see?"}},
		{"path", saysHouse, []string{"generate", "--messages", messages(object{"type": "image", "image": houseAndHeart}, question)}},
		{"data URL", saysStar, []string{"generate", "--messages", messages(object{"type": "image_url", "image_url": object{"url": inline}}, question)}},
		{"on white", saysHouse, []string{"run", "--image-on-white", "--image-as-stored", "--max-image-pixels", "16000", "--image", houseAndHeart, "What do you see?"}},
		{"folder", saysHouse, []string{"run", "--video", frames, "--fps", "2", "What do you see?"}},
		{"frames", saysHouse, []string{"run", "--video", houseAndHeart, "--video", houseAndHeart, "What do you see?"}},
		{"animation", saysStar, []string{"run", "--video", filepath.Join(dir, "moving.gif"), "What do you see?"}},
	} {
		o := runIn(t, nil, append(c.args, "--threads", "1", "--temp", "0", "--max-tokens", "16")...)
		if o.code != exitOK || strings.TrimSpace(o.out) != c.want {
			t.Errorf("%s: exit code %d, %q, %s", c.name, o.code, o.out, o.err)
		}
	}
}

func TestMistakesWithPicturesAreNamed(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, filepath.Join(dir, "text.png"), "no image")
	filetest.Write(t, filepath.Join(dir, "empty.png"), "")
	filetest.Write(t, filepath.Join(dir, "cut.png"), filetest.Read(t, houseAndHeart)[:2000])
	if err := os.Mkdir(filepath.Join(dir, "none"), 0o700); err != nil {
		t.Fatal(err)
	}
	filetest.Write(t, filepath.Join(dir, "remote.json"), []byte(`[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]}]`))
	filetest.Write(t, filepath.Join(dir, "system.json"), []byte(`[{"role": "user", "content": [{"type": "image", "image": "nowhere.png"}]}]`))
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"run", "--image", in("absent.png"), "Hi."}, 1, "--image: open " + in("absent.png")},
		{[]string{"run", "--image", dir, "Hi."}, 1, "is a folder: give an image in it, or a folder of frames with --video"},
		{[]string{"run", "--image", in("text.png"), "Hi."}, 1, `text.png: not a PNG, JPEG, WebP or GIF image: it begins with "no image"`},
		{[]string{"run", "--image", in("empty.png"), "Hi."}, 1, "empty.png: not a PNG, JPEG, WebP or GIF image: no bytes"},
		{[]string{"run", "--image", in("cut.png"), "Hi."}, 1, "image or video 1: broken image"},
		{[]string{"run", "--video", in("none"), "Hi."}, 1, "the folder has no images: want frames that end in .png, .jpg, .jpeg, .webp or .gif"},
		{[]string{"run", "--video", houseAndHeart, "Hi."}, 1, "is one frame: give all frames of the video, their folder, or an animated GIF"},
		{[]string{"run", "--video", houseAndHeart, "--video", starAndBall, "Hi."}, 1, "video with a first frame of 320×240 pixels and frame 2 of 500×333"},
		{[]string{"run", "--fps", "2", "Hi."}, 2, "--fps needs --video"},
		{[]string{"run", "--fps", "0", "--video", dir, "Hi."}, 2, "--fps 0: want a number above 0"},
		{[]string{"run", "--image", "", "Hi."}, 2, "--image"},
		{[]string{"run", "--no-vision", "--image", houseAndHeart, "Hi."}, 2, "--image and --no-vision cannot be combined"},
		{[]string{"run", "--no-vision", "--mmproj", "a.gguf", "Hi."}, 2, "--mmproj and --no-vision cannot be combined"},
		{[]string{"run", "--no-chat-template", "--video", dir, "Hi."}, 2, "--video needs the chat template"},
		{[]string{"run", "--mmproj", "a.gguf", "Hi."}, 1, "foretoken: tiny is not a GGUF file: its vision tower is part of the checkpoint, so a.gguf"},
		{[]string{"serve", "--mmproj", "a.gguf", "--model", "a.gguf", "--model", "b.gguf"}, 2, "--mmproj is the vision tower of one model, but 2 models are given"},
		{[]string{"serve", "--no-vision", "--max-image-pixels", "5000"}, 2, "--max-image-pixels and --no-vision cannot be combined"},
		{[]string{"convert", "--no-vision", "--vision-bits", "4", "--out", "x"}, 2, "--vision-bits and --no-vision cannot be combined"},
		{[]string{"run", "--max-image-pixels", "5", "Hi."}, 2, "want a whole number, 1024 or more"},
		{[]string{"generate", "--image", houseAndHeart, "--messages", "a.json"}, 2, "--image and --video cannot be combined with --messages"},
		{[]string{"generate", "--image", houseAndHeart, "--prompt-ids", "1"}, 2, "--image and --video cannot be combined with --prompt-ids"},
		{[]string{"generate", "--messages", in("remote.json")}, 1, `messages[0]: 'content[0]': URL "https://example.org/a.png" is not fetched: download it and give the file`},
		{[]string{"generate", "--no-vision", "--messages", messagesFile(t, houseAndHeart)}, 1, "this model does not accept images: its vision tower was left out"},
		{[]string{"generate", "--messages", in("system.json")}, 1, "'content[0]': open nowhere.png"},
	} {
		if o := runIn(t, nil, c.args...); o.code != c.code || !strings.Contains(o.err, c.says) || o.out != "" {
			t.Errorf("foretoken %q: exit code %d, %q; want %d, %q", c.args, o.code, o.err, c.code, c.says)
		}
	}
}

// TestTextLoadsNoTower: what is given nothing to see takes the memory of a text model.
func TestTextLoadsNoTower(t *testing.T) {
	loaded := func(args ...string) float64 {
		t.Helper()
		o := runIn(t, nil, append(args, "--threads", "1", "--max-tokens", "1", "--verbose")...)
		found := regexp.MustCompile(`([0-9.]+) MB in memory`).FindStringSubmatch(o.err)
		if o.code != exitOK || found == nil {
			t.Fatalf("%q: %+v", args, o)
		}
		mb, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return mb
	}
	sighted := loaded("run", "--image", houseAndHeart)
	for _, args := range [][]string{{"run", "Hi."}, {"generate", "--prompt", "Hi."}, {"run", "--no-vision", "Hi."}} {
		if blind := loaded(args...); blind > sighted-2.9 { // the tower has 3 MB
			t.Errorf("%q: %v MB, with an image %v", args, blind, sighted)
		}
	}
}

// messagesFile is a conversation about a picture.
func messagesFile(t *testing.T, picture string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "messages.json")
	filetest.Write(t, path, fmt.Appendf(nil, `[{"role": "user", "content": [{"type": "image", "image": %q}, {"type": "text", "text": "What do you see?"}]}]`, picture))
	return path
}
