package terminal

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/picture"
	"github.com/foretoken/foretoken/internal/server/media"
)

// maxFrames is the maximum size of all files of a video together, in bytes.
const maxFrames = 1 << 30

// pictureEndings are those of files that can be attached.
var pictureEndings = []string{".png", ".jpg", ".jpeg", ".webp", ".gif"}

// attachment is an image or video of a message.
type attachment struct {
	name string // for people
	*chat.Media
}

// String describes the attachment in a line.
func (a attachment) String() string {
	size := 0
	for _, f := range a.Files {
		size += len(f)
	}
	kind := "image"
	switch {
	case a.Video && len(a.Files) == 1:
		kind = "animation"
	case a.Video:
		kind = "video of " + console.Counted(len(a.Files), "frame")
	}
	return fmt.Sprintf("%s, %s, %s", a.name, kind, console.ByteText(int64(size)))
}

// read reads the files that the flags name.
func (f *mediaFlags) read() ([]attachment, error) {
	var list []attachment
	for _, path := range f.images {
		a, err := readPicture(path)
		if err != nil {
			return nil, fmt.Errorf("--image: %w", err)
		}
		list = append(list, a)
	}
	videos, err := readVideos(f.videos)
	if err != nil {
		return nil, fmt.Errorf("--video: %w", err)
	}
	for _, v := range videos {
		v.Rate = f.rate.Or(0)
	}
	return append(list, videos...), nil
}

// readPicture attaches an image.
func readPicture(path string) (attachment, error) {
	data, err := readMedia(path)
	return attachment{filepath.Base(path), &chat.Media{Files: [][]byte{data}}}, err
}

// readVideos attaches folders and animations, each a video, or the frames of a single one.
func readVideos(paths []string) ([]attachment, error) {
	var list []attachment
	var frames []string
	for _, path := range paths {
		v := attachment{name: filepath.Base(path)}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, err
		case info.IsDir():
			v.Media, err = readFolder(path)
		case strings.EqualFold(filepath.Ext(path), ".gif"):
			v.Media, err = readFrames([]string{path})
		default:
			frames = append(frames, path)
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	switch {
	case len(frames) == 0:
		return list, nil
	case len(list) > 0 || len(frames) == 1:
		return nil, fmt.Errorf("%s is one frame: give all frames of the video, their folder, or an animated GIF", frames[0])
	}
	m, err := readFrames(frames)
	return []attachment{{filepath.Base(frames[0]) + " …", m}}, err
}

// readFolder reads the frames in a folder, in the order of their names.
func readFolder(path string) (*chat.Media, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var frames []string
	for _, e := range entries {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") && isPictureName(e.Name()) {
			frames = append(frames, filepath.Join(path, e.Name()))
		}
	}
	if len(frames) == 0 {
		return nil, fmt.Errorf("%s: the folder has no images: want frames that end in %s", path, flags.Alternatives(pictureEndings))
	}
	slices.SortFunc(frames, compareNames)
	return readFrames(frames)
}

// readFrames reads the files of a video.
func readFrames(paths []string) (*chat.Media, error) {
	m, size := &chat.Media{Video: true}, 0
	for _, path := range paths {
		data, err := readMedia(path)
		if err != nil {
			return nil, err
		}
		if size += len(data); size > maxFrames {
			return nil, fmt.Errorf("%s: the frames up to this one have more than %s: remove or shrink some frames", path, console.ByteText(maxFrames))
		}
		m.Files = append(m.Files, data)
	}
	return m, nil
}

// readMedia reads a file that may be an image.
func readMedia(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading: nothing to lose
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s is a folder: give an image in it, or a folder of frames with --video", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, picture.DefaultMaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > picture.DefaultMaxBytes {
		return nil, fmt.Errorf("%s: more than %s", path, console.ByteText(picture.DefaultMaxBytes))
	}
	if err := picture.CheckFormat(data[:min(len(data), picture.HeadBytes)]); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// openPart returns the file that a part of a message names: the data of a data: URL, or a file of the user,
// by its path or file: URL.
func openPart(name string) ([]byte, error) {
	scheme, rest, found := strings.Cut(name, ":")
	switch scheme = strings.ToLower(scheme); {
	case found && scheme == "data":
		return media.FromDataURL([]byte(rest))
	case found && scheme == "file":
		u, err := url.Parse(name)
		if err != nil || u.Host != "" && u.Host != "localhost" || u.Path == "" {
			return nil, fmt.Errorf("%.80q: want file:///PATH", name)
		}
		return readMedia(filepath.FromSlash(u.Path))
	case found && (scheme == "http" || scheme == "https"):
		return nil, fmt.Errorf("URL %.80q is not fetched: download it and give the file", name)
	}
	path, err := load.ExpandHome(name)
	if err != nil {
		return nil, err
	}
	return readMedia(path)
}

// isPictureName reports whether a name has the extension of an image.
func isPictureName(name string) bool {
	return slices.Contains(pictureEndings, strings.ToLower(filepath.Ext(name)))
}

// compareNames orders names as people do: numbers in them by their value, so that frame10 is
// after frame9.
func compareNames(a, b string) int {
	for x, y := a, b; x != "" && y != ""; {
		m, n := digits(x), digits(y)
		if m == 0 || n == 0 {
			if x[0] != y[0] {
				return int(x[0]) - int(y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		v, w := strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")
		if len(v) != len(w) {
			return len(v) - len(w)
		}
		if c := strings.Compare(v, w); c != 0 {
			return c
		}
		x, y = x[m:], y[n:]
	}
	return strings.Compare(a, b) // one begins with the other, or they differ in zeros
}

// digits is how many digits a text begins with.
func digits(text string) int { return len(text) - len(strings.TrimLeft(text, "0123456789")) }
