package media

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/foretoken/foretoken/internal/picture"
)

// maxBytes is the maximum size of an image that is decoded.
const maxBytes = picture.DefaultMaxBytes

// maxHeader is the maximum length of a data: URL before its comma.
const maxHeader = 1 << 10

// FromDataURL is the bytes that a data: URL (RFC 2397) holds, which is written without its scheme.
// Errors show nothing of them.
func FromDataURL(url []byte) ([]byte, error) {
	head, data, ok := bytes.Cut(url[:min(len(url), maxHeader)], []byte{','})
	if !ok {
		return nil, errors.New("the data: URL has no comma, want data:image/png;base64, and the image")
	}
	data = url[len(head)+1:]
	kind, isBase64 := strings.TrimRight(string(head), " "), false
	if at := strings.LastIndexByte(kind, ';'); strings.EqualFold(strings.TrimLeft(kind[at+1:], " "), "base64") && at >= 0 {
		kind, isBase64 = kind[:at], true
	}
	if err := checkType(kind); err != nil {
		return nil, err
	}
	if len(data) > 3*maxBytes { // all of them escaped
		return nil, errTooLarge
	}
	if bytes.IndexByte(data, '%') >= 0 {
		var err error
		if data, err = unescape(data); err != nil {
			return nil, err
		}
	}
	if isBase64 {
		return fromBase64(data)
	}
	if len(data) == 0 {
		return nil, errEmpty
	}
	return bytes.Clone(data), nil // the body is not kept
}

var (
	errEmpty    = errors.New("the image has no bytes")
	errTooLarge = fmt.Errorf("the image has more than %d bytes, the maximum", maxBytes)
)

// checkType refuses a media type that is not one of an image. A missing one may be anything.
func checkType(text string) error {
	kind, _, _ := strings.Cut(text, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	switch {
	case kind == "", strings.HasPrefix(kind, "image/"), kind == "application/octet-stream":
		return nil
	case strings.HasPrefix(kind, "video/"):
		return fmt.Errorf("data of type %.40q is not supported: send a video as a list of frames or as an animated GIF", kind)
	}
	return fmt.Errorf("data of type %.40q, want the type of an image, such as image/png", kind)
}

// unescape replaces %XX by the byte of that number.
func unescape(data []byte) ([]byte, error) {
	out := make([]byte, 0, len(data))
	for len(data) > 0 {
		at := bytes.IndexByte(data, '%')
		if at < 0 {
			break
		}
		var b [1]byte
		if len(data) < at+3 {
			return nil, errors.New("the data: URL ends within a % escape")
		}
		if _, err := hex.Decode(b[:], data[at+1:at+3]); err != nil {
			return nil, errors.New("the data: URL has a % without two hexadecimal digits")
		}
		out = append(append(out, data[:at]...), b[0])
		data = data[at+3:]
	}
	return append(out, data...), nil
}

// fromBase64 decodes base64 of either alphabet, with or without padding and white space.
func fromBase64(text []byte) ([]byte, error) {
	data, err := decode(text)
	if err != nil && !errors.Is(err, errTooLarge) { // perhaps there is more in it than programs usually write
		text = bytes.Map(func(r rune) rune {
			switch r {
			case ' ', '\t', '\r', '\n', '\f':
				return -1
			case '-':
				return '+'
			case '_':
				return '/'
			}
			return r
		}, text)
		data, err = decode(text)
	}
	switch {
	case errors.Is(err, errTooLarge):
		return nil, err
	case err != nil:
		return nil, errors.New("the data is not base64")
	case len(data) == 0:
		return nil, errEmpty
	}
	return data, nil
}

// decode decodes base64 of the usual alphabet, with or without padding and line breaks.
func decode(text []byte) ([]byte, error) {
	text = bytes.TrimRight(text, "=\r\n")
	size := base64.RawStdEncoding.DecodedLen(len(text))
	if size > maxBytes/16*17 { // with room for line breaks
		return nil, errTooLarge
	}
	data := make([]byte, size)
	n, err := base64.RawStdEncoding.Decode(data, text)
	return data[:n], err
}
