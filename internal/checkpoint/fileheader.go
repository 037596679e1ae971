package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Decl announces a tensor to be written.
type Decl struct {
	Name  string
	Type  dtype.Type
	Shape []int
}

// dataAlign is the alignment of the start of the tensor data, a cache line.
// The format allows no padding between tensors.
const dataAlign = 64

// FileHeader is the beginning of a safetensors file, which the bytes of the tensors follow in the order of decls. metadata may
// be nil.
func FileHeader(decls []Decl, metadata map[string]string) ([]byte, error) {
	header := []byte("{")
	if len(metadata) > 0 {
		text, err := json.Marshal(metadata) // sorts the keys
		if err != nil {
			return nil, fmt.Errorf("checkpoint: metadata: %w", err)
		}
		header = fmt.Appendf(header, `"__metadata__":%s,`, text)
	}
	seen := map[string]bool{"__metadata__": true}
	at := 0
	for _, d := range decls {
		if seen[d.Name] {
			return nil, fmt.Errorf("checkpoint: tensor %q is declared twice", d.Name)
		}
		seen[d.Name] = true
		size, text, err := d.describe(at)
		if err != nil {
			return nil, fmt.Errorf("checkpoint: tensor %q: %w", d.Name, err)
		}
		header = append(append(header, text...), ',')
		at += size
	}
	header = append(bytes.TrimSuffix(header, []byte(",")), '}')
	for (8+len(header))%dataAlign != 0 {
		header = append(header, ' ')
	}
	if len(header) > maxHeader {
		return nil, fmt.Errorf("checkpoint: header of %d bytes, at most %d", len(header), maxHeader)
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), nil
}

// describe is the size of the tensor and its member of the header, with its bytes
// beginning at the given offset.
func (d Decl) describe(at int) (size int, text []byte, err error) {
	if _, err := dtype.Parse(d.Type.String()); err != nil {
		return 0, nil, err
	}
	size, ok := byteSize(d.Type, d.Shape)
	if !ok || at+size < at || len(d.Shape) > maxRank {
		return 0, nil, fmt.Errorf("shape %s is too large", shapeText(d.Shape))
	}
	if !utf8.ValidString(d.Name) {
		return 0, nil, errors.New("name is not UTF-8")
	}
	name, err := json.Marshal(d.Name)
	return size, fmt.Appendf(nil, `%s:{"dtype":"%v","shape":%s,"data_offsets":[%d,%d]}`,
		name, d.Type, shapeText(d.Shape), at, at+size), err
}
