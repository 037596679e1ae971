package prefix

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
)

// A file has a node's pages, or an entry. It is
//
//	magic, version, number of sections, key, length of each section, sections, checksum
//
// with numbers in little-endian order, and SHA-256 of everything before it as checksum.
// Sections are written by package state. A missing section is empty.
const (
	magic      = "ftprefix"
	version    = 3
	fileHeader = len(magic) + 4 + 4 + len(key{})
)

// key names a prefix of texts of one model. It is a cryptographic hash: a client that chooses
// texts must not be able to make two with the same key.
type key [16]byte

// rootKey is the key of no tokens at all, given everything that numbers depend on besides tokens. Files
// of another version are never found.
func rootKey(identity string) key {
	return key(sum([]byte(magic), []byte{version}, []byte(identity)))
}

// next is the key of k's prefix of a text and the stretch [from, to) behind it.
func (k key) next(t *Text, from, to int) key {
	data := make([]byte, 0, 4*(to-from))
	for _, id := range t.Tokens[from:to] {
		data = binary.LittleEndian.AppendUint32(data, uint32(id))
	}
	rows := t.digest(from, to)
	return key(sum(k[:], data, rows[:]))
}

func sum(parts ...[]byte) []byte {
	h := sha256.New()
	for _, p := range parts {
		_, _ = h.Write(p) // never fails
	}
	return h.Sum(nil)[:len(key{})]
}

// name is a file's name. An entry's has its node and the number of tokens after it,
// so that a listing of the folder is enough to find the entries of a text.
type name struct {
	node key
	rest int // -1: the node itself
	end  key // of the entry
}

func (n name) String() string {
	if n.rest < 0 {
		return hex.EncodeToString(n.node[:]) + pageSuffix
	}
	return fmt.Sprintf("%x-%02d-%x%s", n.node[:], n.rest, n.end[:], endSuffix)
}

// prefix is the common prefix of the names of all files of the node.
func (n name) prefix() string { return hex.EncodeToString(n.node[:]) }

// key is that of the file's contents.
func (n name) key() key {
	if n.rest < 0 {
		return n.node
	}
	return n.end
}

const (
	pageSuffix = ".page"
	endSuffix  = ".end"
	tempSuffix = ".tmp"
)

// parseName is the reverse of String.
func parseName(s string) (n name, ok bool) {
	n.rest = -1
	node, isPage := strings.CutSuffix(s, pageSuffix)
	if !isPage {
		parts := strings.Split(strings.TrimSuffix(s, endSuffix), "-")
		if len(parts) != 3 {
			return n, false
		}
		var err error
		if n.rest, err = strconv.Atoi(parts[1]); err != nil || n.rest < 0 || n.rest >= backend.PageTokens || !n.end.parse(parts[2]) {
			return n, false
		}
		node = parts[0]
	}
	return n, n.node.parse(node) && n.String() == s
}

func (k *key) parse(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && copy(k[:], b) == len(k) && len(b) == len(k)
}

// startFile begins a file with sections of size bytes together.
func startFile(k key, sections int, size int64) []byte {
	b := make([]byte, 0, int64(fileHeader+8*sections+sha256.Size)+size)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, uint32(sections))
	b = append(b, k[:]...)
	return append(b, make([]byte, 8*sections)...)
}

// endSection notes that section i has just been appended, and began at that place.
func endSection(b []byte, i, from int) {
	binary.LittleEndian.PutUint64(b[fileHeader+8*i:], uint64(len(b)-from))
}

// sealFile appends the checksum.
func sealFile(b []byte) []byte {
	s := sha256.Sum256(b)
	return append(b, s[:]...)
}

// openFile checks a file that should be of that key and have a number of sections, and returns
// them.
func openFile(b []byte, k key, sections int) ([][]byte, error) {
	start := fileHeader + 8*sections
	if len(b) < start+sha256.Size || string(b[:len(magic)]) != magic {
		return nil, errForeign
	}
	if v := binary.LittleEndian.Uint32(b[len(magic):]); v != version {
		return nil, fmt.Errorf("%w: format %d, want %d", errForeign, v, version)
	}
	if n := binary.LittleEndian.Uint32(b[len(magic)+4:]); n != uint32(sections) || !bytes.Equal(b[fileHeader-len(k):fileHeader], k[:]) {
		return nil, fmt.Errorf("%w: the file belongs to another text or model", errForeign)
	}
	body := b[:len(b)-sha256.Size]
	if s := sha256.Sum256(body); !bytes.Equal(s[:], b[len(body):]) {
		return nil, fmt.Errorf("%w: checksum does not match: the file is damaged", errForeign)
	}
	list := make([][]byte, sections)
	rest := body[start:]
	for i := range list {
		n := binary.LittleEndian.Uint64(b[fileHeader+8*i:])
		if n > uint64(len(rest)) {
			return nil, fmt.Errorf("%w: section %d has %d bytes, but only %d are left in the file", errForeign, i, n, len(rest))
		}
		list[i], rest = rest[:n:n], rest[n:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after the last section", errForeign, len(rest))
	}
	return list, nil
}
