package tokenizer

import "unicode/utf8"

// The byte alphabet writes each byte as one printable character, so that a
// vocabulary of byte strings can be stored as text: bytes that are printable in
// Latin-1 stand for themselves, and the others, in order, are the characters
// from U+0100 on (Radford et al., 2019, the released GPT-2 encoder).
const alphabetEnd = 0x100 + 68 // 68 bytes are not printable

// byteOf gives the byte each character of the alphabet stands for, -1 for
// characters below alphabetEnd that are not in it.
var byteOf = func() (table [alphabetEnd]int16) {
	for i := range table {
		table[i] = -1
	}
	shifted := rune(0x100)
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			table[b] = int16(b)
			continue
		}
		table[shifted] = int16(b)
		shifted++
	}
	return table
}()

// appendBytes appends the bytes that text stands for to dst. ok is false, and
// text itself is appended, if it has a character outside the byte alphabet;
// the reference's decoder treats such tokens in the same way.
func appendBytes(dst, text []byte) (out []byte, ok bool) {
	start := len(dst)
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(text[i:])
		}
		if r >= alphabetEnd || byteOf[r] < 0 {
			return append(dst[:start], text...), false
		}
		dst = append(dst, byte(byteOf[r]))
		i += size
	}
	return dst, true
}
