package terminal

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/picture"
)

// mentions are the parts of a message of a chat: its text, and in their places the files it names,
// which are attached. A file is named by @PATH, or by a whole path as terminals write one when a
// file is dragged onto them. PATH may be quoted or escaped as in a shell. Names of other files
// than images and folders stay text.
func mentions(text string) (parts []chat.Part, attached []attachment, err error) {
	from := 0
	for at := 0; at < len(text); {
		if at > 0 && !isSpace(text[at-1]) { // not the first byte of a word
			at++
			continue
		}
		path, n := mention(text[at:])
		if n == 0 {
			at++
			continue
		}
		a, err := attach(path)
		if err != nil {
			return nil, nil, err
		}
		if before := text[from:at]; strings.TrimSpace(before) != "" {
			parts = append(parts, chat.Part{Text: before})
		}
		parts, attached = append(parts, chat.Part{Media: a.Media}), append(attached, a)
		at += n
		from = at
	}
	if rest := text[from:]; strings.TrimSpace(rest) != "" {
		parts = append(parts, chat.Part{Text: rest})
	}
	return parts, attached, nil
}

// mention is the path that a text begins with, and its length in the text, 0 if
// there is none.
func mention(text string) (path string, n int) {
	name, marked := strings.CutPrefix(text, "@")
	word, n := shellWord(name, runtime.GOOS != "windows")
	if plain := strings.TrimRight(word, ".,;:!?)"); strings.HasSuffix(name[:n], word[len(plain):]) {
		n -= len(word) - len(plain) // it ends a sentence
		word = plain
	}
	path, err := load.ExpandHome(word)
	if path == "" || err != nil || !marked && !filepath.IsAbs(path) {
		return "", 0
	}
	info, err := os.Stat(path)
	folder := err == nil && info.IsDir()
	switch {
	case folder && marked, isPictureName(path) && marked: // also one that is not there
		return path, n + 1
	case isPictureName(path) && err == nil && !folder:
		return path, n
	}
	return "", 0
}

// attach reads a mentioned image, animation or folder of frames.
func attach(path string) (a attachment, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		m, err := readFolder(path)
		return attachment{filepath.Base(path), m}, err
	}
	if a, err = readPicture(path); err == nil {
		a.Video = isAnimation(a.Files[0])
	}
	return a, err
}

// isAnimation reports whether a file is a GIF of several frames.
func isAnimation(data []byte) bool {
	several := false
	_, err := picture.DecodeFrames(data, picture.Options{}, func(frames int, _ float64) []int {
		several = frames > 1
		return nil
	})
	return several && err == nil
}

// isSpace reports whether a byte of a text parts words.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// shellWord is the first word of a text as a shell would read it, and its length there. Backslashes
// escape, or are part of a path unless escapes. An unclosed quote is literal.
func shellWord(text string, escapes bool) (word string, n int) {
	var b strings.Builder
	for n < len(text) && !isSpace(text[n]) {
		switch c := text[n]; {
		case c == '\\' && escapes && n+1 < len(text):
			b.WriteByte(text[n+1])
			n += 2
		case (c == '\'' || c == '"') && strings.IndexByte(text[n+1:], c) >= 0:
			end := n + 1 + strings.IndexByte(text[n+1:], c)
			b.WriteString(text[n+1 : end])
			n = end + 1
		default:
			b.WriteByte(c)
			n++
		}
	}
	return b.String(), n
}
