package store

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

// A file has a node's pages, those of windows that end there, or an entry. It is
//
//	magic, version, number of sections, key, length of each section, sections, checksum
//
// with numbers in little-endian order, and SHA-256 of everything before it as checksum.
// Sections are written by package state. A missing section is empty.
const (
	magic      = "ftprefix"
	version    = 3
	fileHeader = len(magic) + 4 + 4 + len(Key{})
)

// Key names a prefix of texts of one model. It is a cryptographic hash: a client that chooses
// texts must not be able to make two with the same key.
type Key [16]byte

// Next is the key of k's prefix with more tokens and rows behind it.
func (k Key) Next(tokens, rows []byte) Key { return Key(sum(k[:], tokens, rows)) }

func sum(parts ...[]byte) []byte {
	h := sha256.New()
	for _, p := range parts {
		_, _ = h.Write(p) // never fails
	}
	return h.Sum(nil)[:len(Key{})]
}

// Name is a file's name. An entry's has its node and the number of tokens after it,
// so that a listing of the folder is enough to find the entries of a text.
type Name struct {
	node Key
	rest int // pageFile, windowFile: of the node itself
	end  Key // of the entry
}

const (
	pageFile   = -1 // the pages that stay
	windowFile = -2 // the pages of windows
)

// Names are the files of an entry whose key is end, rest tokens behind the last of its nodes: one for
// each node except the first, which has no page, one for each page of windows from page window on, and one for the entry.
func Names(nodes []Key, window, rest int, end Key) (list []Name) {
	for _, k := range nodes[1:] {
		list = append(list, page(k))
	}
	for _, k := range nodes[1+min(window, len(nodes)-1):] {
		list = append(list, Name{node: k, rest: windowFile})
	}
	return append(list, Name{nodes[len(nodes)-1], rest, end})
}

// page is the file of a node.
func page(node Key) Name { return Name{node: node, rest: pageFile} }

func (n Name) String() string {
	switch n.rest {
	case pageFile:
		return n.prefix() + pageSuffix
	case windowFile:
		return n.prefix() + windowSuffix
	}
	return fmt.Sprintf("%x-%02d-%x%s", n.node[:], n.rest, n.end[:], endSuffix)
}

// prefix is the common prefix of the names of all files of the node.
func (n Name) prefix() string { return hex.EncodeToString(n.node[:]) }

// key is that of the file's contents.
func (n Name) key() Key {
	if n.rest < 0 {
		return n.node
	}
	return n.end
}

// sections is the number of the file's sections: a page of the target and of each drafter, a page of each window, or the
// target's snapshot and a snapshot and a row of each drafter.
func (n Name) sections(q *Query) int {
	switch n.rest {
	case pageFile:
		return 1 + q.Drafters
	case windowFile:
		return q.Windows
	}
	return 1 + 2*q.Drafters
}

const (
	pageSuffix   = ".page"
	windowSuffix = ".win"
	endSuffix    = ".end"
	tempSuffix   = ".tmp"
)

// parseName is the reverse of String.
func parseName(s string) (n Name, ok bool) {
	n.rest = pageFile
	node, isNode := strings.CutSuffix(s, pageSuffix)
	if !isNode {
		n.rest = windowFile
		node, isNode = strings.CutSuffix(s, windowSuffix)
	}
	if !isNode {
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

func (k *Key) parse(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && copy(k[:], b) == len(k) && len(b) == len(k)
}

// fileBytes is the size of a file with these sections.
func fileBytes(sections []Section) int64 {
	n := int64(fileHeader + 8*len(sections) + sha256.Size)
	for _, x := range sections {
		n += x.Bytes()
	}
	return n
}

// pack is the file of size bytes with these sections, without the checksum.
func pack(n Name, sections []Section, size int64) (b []byte, err error) {
	k := n.key()
	b = make([]byte, 0, size)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(sections)))
	b = append(b, k[:]...)
	b = append(b, make([]byte, 8*len(sections))...)
	for i, x := range sections {
		from := len(b)
		if b, err = x.AppendTo(b); err != nil {
			return nil, err
		}
		binary.LittleEndian.PutUint64(b[fileHeader+8*i:], uint64(len(b)-from))
	}
	return b, nil
}

// sealed is the size of a file with its checksum.
func sealed(b []byte) int64 { return int64(len(b)) + sha256.Size }

// seal appends the checksum.
func seal(b []byte) []byte {
	s := sha256.Sum256(b)
	return append(b, s[:]...)
}

// unpack checks a file that should have that name and number of sections, and returns them.
func unpack(b []byte, n Name, sections int) ([][]byte, error) {
	k := n.key()
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
