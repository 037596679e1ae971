package prompt

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/png"
	"log/slog"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/picture"
	"github.com/foretoken/foretoken/internal/rescue"
)

// shown is an image of one shade.
func shown(t *testing.T, shade uint8) *chat.Media {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, 64, 64))
	for i := range m.Pix {
		m.Pix[i] = shade
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return &chat.Media{Files: [][]byte{b.Bytes()}}
}

// TestRefuseLogsTheStack makes a decoder panic: the error has the first line, and the log has the rest.
func TestRefuseLogsTheStack(t *testing.T) {
	var log bytes.Buffer
	b := &Builder{
		log:        slog.New(slog.NewTextHandler(&log, nil)),
		mediaError: func(i int, err error) error { return fmt.Errorf("image or video %d: %w", i+1, err) },
	}
	fault := b.refuse(4, fmt.Errorf("%w: %w", picture.ErrCorrupt, rescue.New("index out of range")))
	if got := fault.Error(); got != "image or video 5: broken image: panic: index out of range" || !errors.Is(fault, picture.ErrCorrupt) {
		t.Errorf("a decoder's fault: %q", got)
	}
	if !bytes.Contains(log.Bytes(), []byte("media_test.go")) {
		t.Errorf("the log has no stack: %s", &log)
	}
}

// TestPicturesAreDecodedOnce sends files again: they are cached, within the limit,
// and other files, or other limits, are not.
func TestPicturesAreDecodedOnce(t *testing.T) {
	s := &imageProcessor{images: picture.Images(), videos: picture.Videos()}
	see := func(x *chat.Media) Media {
		t.Helper()
		v, err := s.prepare(t.Context(), "", x)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	one := shown(t, 1)
	first := see(one)
	small := shown(t, 1)
	if see(small).Patches != first.Patches {
		t.Error("the same image was decoded again")
	}
	if other, err := s.prepare(t.Context(), "of another tenant", one); err != nil || other.Patches == first.Patches || other.Hash != first.Hash {
		t.Errorf("another tenant is told that the image was decoded before: %v", err)
	}
	small.MaxPixels = 1024
	if other := see(small); other.Patches == first.Patches || see(small).Patches != other.Patches {
		t.Error("a smaller one is not what was asked for")
	}
	if see(shown(t, 2)).Patches == first.Patches {
		t.Error("another image is taken for it")
	}
	n := first.Bytes()
	for range maxRecent/n + 5 {
		s.keep(recent{media: first})
	}
	if got := len(s.recent); got != maxRecent/n {
		t.Errorf("%d images of %d bytes are kept, want %d", got, n, maxRecent/n)
	}
}
