package kvevents

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
)

// batch is events in MessagePack, as vLLM has them since its events are maps.
type batch struct {
	n      int
	events []byte
}

// stored adds the event that a run of blocks can be resumed, after the block parent; 0: it is the first.
func (b *batch) stored(parent uint64, run []*block, size int) {
	fields, keyed := 7, slices.ContainsFunc(run, func(x *block) bool { return len(x.keys) > 0 })
	if keyed {
		fields++
	}
	e := appendMap(b.events, fields)
	e = appendText(appendText(e, "type"), "BlockStored")
	e = appendList(appendText(e, "block_hashes"), len(run))
	for _, x := range run {
		e = appendID(e, x.id())
	}
	e = appendText(e, "parent_block_hash")
	if parent == 0 {
		e = appendNil(e)
	} else {
		e = appendID(e, parent)
	}
	e = appendList(appendText(e, "token_ids"), len(run)*size)
	for _, x := range run {
		for _, id := range x.tokens {
			e = appendUint(e, uint32(id))
		}
	}
	e = appendUint(appendText(e, "block_size"), uint32(size))
	e = appendNil(appendText(e, "lora_id"))
	if keyed {
		e = appendKeys(e, run)
	}
	b.events = appendText(appendText(e, "medium"), medium)
	b.n++
}

// appendKeys encodes the contents of blocks besides their tokens: for each a list of keys, or nothing.
func appendKeys(e []byte, run []*block) []byte {
	e = appendList(appendText(e, "extra_keys"), len(run))
	for _, x := range run {
		if len(x.keys) == 0 {
			e = appendNil(e)
			continue
		}
		e = appendList(e, len(x.keys))
		for _, k := range x.keys {
			e = appendText(e, k)
		}
	}
	return e
}

// removed adds the event that blocks can no longer be resumed.
func (b *batch) removed(ids []uint64) {
	if len(ids) == 0 {
		return
	}
	e := appendMap(b.events, 3)
	e = appendText(appendText(e, "type"), "BlockRemoved")
	e = appendList(appendText(e, "block_hashes"), len(ids))
	for _, id := range ids {
		e = appendID(e, id)
	}
	b.events = appendText(appendText(e, "medium"), medium)
	b.n++
}

// cleared adds the event that no block of the server can be resumed.
func (b *batch) cleared() {
	b.events = appendText(appendText(appendMap(b.events, 1), "type"), "AllBlocksCleared")
	b.n++
}

// medium is where blocks are, in the words of the protocol: the one that counts most. That a
// device is a processor, or that a block has to be read from a disk first, makes it no worse than
// computing it elsewhere.
const medium = "GPU"

// bytes is the batch: an array of the time, its events, and which of several engines of a server
// it comes from. Pickers refuse a batch without the last.
func (b *batch) bytes(now time.Time) []byte {
	x := appendList(make([]byte, 0, len(b.events)+20), 3)
	x = append(x, 0xcb)
	x = binary.BigEndian.AppendUint64(x, math.Float64bits(float64(now.UnixMicro())/1e6))
	return appendUint(append(appendList(x, b.n), b.events...), 0)
}

func appendNil(b []byte) []byte { return append(b, 0xc0) }

func appendMap(b []byte, n int) []byte { return append(b, 0x80|byte(n)) } // of fewer than 16

func appendText(b []byte, s string) []byte { // of fewer than 256 bytes
	if len(s) < 32 {
		return append(append(b, 0xa0|byte(len(s))), s...)
	}
	return append(append(b, 0xd9, byte(len(s))), s...)
}

func appendList(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x90|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
}

// appendUint is the shortest form of a number.
func appendUint(b []byte, n uint32) []byte {
	switch {
	case n < 1<<7:
		return append(b, byte(n))
	case n < 1<<8:
		return append(b, 0xcc, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xce), n)
}

// appendID is the longest form: readers take ids of blocks in no other.
func appendID(b []byte, id uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0xcf), id)
}
