package terminal

import (
	"bytes"
	"fmt"
	"image"
	"image/color/palette"
	"image/gif"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/filetest"
)

// TestMentionsAreAttached: names of files in a message are attached, and nothing else is.
func TestMentionsAreAttached(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	picture := filetest.Read(t, filepath.Join(repository(t), "examples/pictures/house-and-heart.png"))
	frame := image.NewPaletted(image.Rect(0, 0, 32, 32), palette.Plan9)
	var moving bytes.Buffer
	if err := gif.EncodeAll(&moving, &gif.GIF{Image: []*image.Paletted{frame, frame}, Delay: []int{50, 50}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.png", "with space.png", "it's.png", "Ü.PNG"} {
		filetest.Write(t, name, picture)
	}
	filetest.Write(t, "moving.gif", moving.Bytes())
	if err := os.Mkdir("frames", 0o700); err != nil {
		t.Fatal(err)
	}
	filetest.Write(t, "frames/1.png", picture)
	filetest.Write(t, "frames/2.png", picture)
	for text, want := range map[string]string{
		"Hello":                               "Hello",
		"@alice says hi @ noon, a@a.png":      "@alice says hi @ noon, a@a.png",
		"@a.png":                              "[a.png]",
		"What is @a.png?":                     "What is |[a.png]|?",
		"@a.png\nWhat?":                       "[a.png]|\nWhat?",
		"(see @a.png)":                        "(see |[a.png]|)",
		`@"with space.png" and @'it'"'"s.png`: "[with space.png]| and |[it's.png]",
		`@with\ space.png, then`:              "[with space.png]|, then",
		"@~/a.png x":                          "[a.png]| x",
		"Über @Ü.PNG":                         "Über |[Ü.PNG]",
		dir + "/a.png what":                   "[a.png]| what",
		"'" + dir + "/with space.png' ":       "[with space.png]",
		"look: " + dir + "/with\\ space.png":  "look: |[with space.png]",
		dir + "/absent.png":                   dir + "/absent.png",
		dir + "/frames":                       dir + "/frames",
		"@frames":                             "[frames: 2 frames]",
		"@moving.gif":                         "[moving.gif: 1 frames]",
		"a.png":                               "a.png",
		"compare @a.png with @it\\'s.png":     "compare |[a.png]| with |[it's.png]",
	} {
		parts, attached, err := mentions(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var got []string
		for _, p := range parts {
			if p.Media == nil {
				got = append(got, p.Text)
				continue
			}
			a := attached[0]
			attached = attached[1:]
			name := a.name
			if a.Media != p.Media {
				t.Errorf("%q: attachments are in another order", text)
			}
			if a.Video {
				name += fmt.Sprintf(": %d frames", len(a.Files))
			}
			got = append(got, "["+name+"]")
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"What is @absent.png?": "absent.png",
		"@'no such.jpg'":       "no such.jpg",
	} {
		if _, _, err := mentions(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestMentionsAreCompleted(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"photo one.png", "photo two.png", "notes.txt", "Übung.jpg", "steers\x1b[2J.png", ".hidden.png"} {
		filetest.Write(t, name, "")
	}
	if err := os.MkdirAll("albums/summer", 0o700); err != nil {
		t.Fatal(err)
	}
	filetest.Write(t, "albums/summer/sea.webp", "")
	for typed, want := range map[string]string{
		"look at @ph":           `look at @photo\ `,
		`@photo\ t`:             `@photo\ two.png`,
		"@alb":                  "@albums/",
		"@albums/":              "@albums/summer/",
		"@albums/summer/s":      "@albums/summer/sea.webp",
		"@Üb":                   "@Übung.jpg",
		"@.h":                   "@.hidden.png",
		"@no":                   "@no",
		"@steers":               "@steers",
		"@":                     "@",
		"me@al":                 "me@al",
		`@"ph`:                  `@"ph`,
		"@albums/ what":         "@albums/ what",
		"@nowhere/a":            "@nowhere/a",
		"@albums/summer/sea.we": "@albums/summer/sea.webp",
	} {
		if got, ok := completeMention(typed); got != want || ok != (typed != want) {
			t.Errorf("%q: %q, %v, want %q", typed, got, ok, want)
		}
	}
}

// repository is its folder, whichever the working folder is now.
func repository(t *testing.T) string {
	t.Helper()
	return filepath.Join(started, "../../../..")
}

// started is the working folder at the start of the tests.
var started = func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return dir
}()

func FuzzMentions(f *testing.F) {
	f.Add("look at @a.png, and '/x y/z.png'")
	f.Add(`@"\@'`)
	f.Fuzz(func(t *testing.T, text string) {
		t.Chdir(t.TempDir()) // nothing is here
		parts, _, err := mentions(text)
		if err != nil || len(parts) == 0 {
			return
		}
		if len(parts) != 1 || parts[0] != (chat.Part{Text: text}) {
			t.Errorf("%q became %v", text, parts)
		}
	})
}
