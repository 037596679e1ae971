package dtype

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

var widths = []int{2, 3, 4, 5, 6, 8}

func words(ws ...uint32) []byte {
	var b []byte
	for _, w := range ws {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func TestPackEqualsVectors(t *testing.T) {
	for bits, want := range map[int][]byte{
		2: words(0x1b1b1b1b, 0x1b1b1b1b),
		3: words(0x53977053, 0x70539770, 0x97705397),
		4: words(0x4d6f81a3, 0xc5e7092b, 0x4d6f81a3, 0xc5e7092b),
		5: words(0x4dfc4543, 0x78245ba3, 0x0753617d, 0x4b276cf4, 0xe55c7066),
		6: words(0x9f611283, 0x90bbd2d9, 0xb2579740, 0x8f201eb3, 0x9cab91d5, 0x71538703),
		8: words(0x18110a03, 0x342d261f, 0x5049423b, 0x6c655e57, 0x88817a73, 0xa49d968f, 0xc0b9b2ab, 0xdcd5cec7),
	} {
		q := make([]uint8, 32)
		for i := range q {
			q[i] = uint8((7*i + 3) % (1 << bits))
		}
		got := make([]byte, packedBytes(len(q), bits))
		Pack(got, bits, q)
		if !slices.Equal(got, want) {
			t.Errorf("%d bits: got %x, want %x", bits, got, want)
		}
		back := make([]uint8, len(q))
		Unpack(back, bits, want)
		if !slices.Equal(back, q) {
			t.Errorf("%d bits: unpacked %v, want %v", bits, back, q)
		}
	}
}

// bit is the definition of the stream.
func bit(src []byte, n int) uint8 { return src[n/8] >> (n % 8) & 1 }

func TestUnpackEqualsBitStream(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for bits := 1; bits <= 8; bits++ {
		for n := range 40 {
			src := make([]byte, packedBytes(n, bits))
			for i := range src {
				src[i] = byte(r.Uint32())
			}
			got := make([]uint8, n)
			Unpack(got, bits, src)
			for i, v := range got {
				var want uint8
				for j := range bits {
					want |= bit(src, i*bits+j) << j
				}
				if v != want {
					t.Fatalf("%d bits: element %d of %d: got %d, want %d", bits, i, n, v, want)
				}
			}
			back := slices.Repeat([]byte{0xff}, len(src))
			Pack(back, bits, got)
			again := make([]uint8, n)
			Unpack(again, bits, back)
			if !slices.Equal(again, got) {
				t.Fatalf("%d bits: %d elements came back as %v, want %v", bits, n, again, got)
			}
		}
	}
}

func TestPackKeepsToItsElements(t *testing.T) {
	for _, bits := range widths {
		dst := make([]byte, packedBytes(16, bits)+1)
		dst[len(dst)-1] = 0xa5
		Pack(dst, bits, slices.Repeat([]uint8{0xff}, 16))
		for i, b := range dst[:len(dst)-1] {
			if b != 0xff {
				t.Errorf("%d bits: byte %d is %#x", bits, i, b)
			}
		}
		if dst[len(dst)-1] != 0xa5 {
			t.Errorf("%d bits: wrote past its bytes", bits)
		}
	}
}

func BenchmarkUnpack(b *testing.B) {
	dst := make([]uint8, 4096)
	for _, bits := range widths {
		b.Run(fmt.Sprintf("bits=%d", bits), func(b *testing.B) {
			src := make([]byte, packedBytes(len(dst), bits))
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				Unpack(dst, bits, src)
			}
		})
	}
}
