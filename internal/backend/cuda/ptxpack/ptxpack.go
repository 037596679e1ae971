// Package ptxpack compresses PTX to less than half of what gzip alone does. Kernels of one template differ in the
// numbers of their registers, and repeat each other at distances beyond the window of gzip.
//
// A line is stored as a template, where # stands for the numbers of registers, and each template once. A packed text is
// the gzip of these parts:
//
//   - the number of lines and of registers, 32 bits each, little-endian;
//   - of each line, how its template is found: 0 for the next template that is new, otherwise one more than the index
//     of an earlier one;
//   - of each register, its distance from the next number of its class that is new in the function: an even number for
//     twice a distance back, an odd one for distances ahead;
//   - the templates, one per line.
//
// Lines and registers are 16-bit numbers, all low bytes before all high bytes. Lines that are comments are left out.
package ptxpack

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// register is a register with its class and number. Declarations, such as %r<12>, and special registers have no number.
var register = regexp.MustCompile(`%([a-z]+)([0-9]+)`)

// counters are the highest number of each class of registers in a function.
type counters map[string]int

// begins reports whether a function or its body begins with a line, and with it the numbers.
func begins(line string) bool {
	return strings.HasPrefix(line, ".visible") || strings.HasPrefix(line, "{")
}

// Pack compresses a text.
func Pack(text string) ([]byte, error) {
	if strings.Contains(text, "#") {
		return nil, errors.New("pack PTX: the text has a #, which stands for numbers")
	}
	var templates strings.Builder
	var lines, registers []int
	known, top := map[string]int{}, counters{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "//") {
			continue
		}
		if begins(line) {
			clear(top)
		}
		template := register.ReplaceAllStringFunc(line, func(name string) string {
			m := register.FindStringSubmatch(name)
			n, err := strconv.Atoi(m[2])
			if err != nil || strconv.Itoa(n) != m[2] {
				return name
			}
			distance := top[m[1]] + 1 - n
			top[m[1]] = max(top[m[1]], n)
			registers = append(registers, distance<<1^distance>>63)
			return "%" + m[1] + "#"
		})
		index, ok := known[template]
		if !ok {
			index = -1
			known[template] = len(known)
			templates.WriteString(template)
		}
		lines = append(lines, index+1)
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(lines)))
	head = binary.LittleEndian.AppendUint32(head, uint32(len(registers)))
	for _, list := range [...][]int{lines, registers} {
		if head, err = appendPlanes(head, list); err != nil {
			return nil, err
		}
	}
	if _, err := z.Write(append(head, templates.String()...)); err != nil {
		return nil, err
	}
	err = z.Close()
	return out.Bytes(), err
}

// appendPlanes appends the low bytes of a list, then the high ones.
func appendPlanes(b []byte, list []int) ([]byte, error) {
	for _, n := range list {
		if n > math.MaxUint16 {
			return nil, fmt.Errorf("pack PTX: the number %d has more than 16 bits: cut the module in two", n)
		}
		b = append(b, byte(n))
	}
	for _, n := range list {
		b = append(b, byte(n>>8))
	}
	return b, nil
}

// Unpack returns the text without the lines that are comments.
func Unpack(packed io.Reader) (string, error) {
	z, err := gzip.NewReader(packed)
	if err != nil {
		return "", fmt.Errorf("unpack PTX: %w", err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		return "", fmt.Errorf("unpack PTX: %w", err)
	}
	if len(data) < 8 {
		return "", errDamaged
	}
	count := [...]int{int(binary.LittleEndian.Uint32(data)), int(binary.LittleEndian.Uint32(data[4:]))}
	data = data[8:]
	var list [len(count)][]int
	for i, n := range count {
		if 2*n > len(data) {
			return "", errDamaged
		}
		list[i] = make([]int, n)
		for j := range n {
			list[i][j] = int(data[j]) | int(data[n+j])<<8
		}
		data = data[2*n:]
	}
	return expand(list[0], list[1], strings.SplitAfter(string(data), "\n"))
}

var errDamaged = errors.New("unpack PTX: the file is damaged: run make kernels")

// piece is a part of a template: text, and behind it the number of a register unless it is the last one.
type piece struct {
	text  string
	class int // of the register; -1: the last piece
}

// pieces cuts templates at their registers and numbers the classes.
func pieces(templates []string) (cut [][]piece, classes int) {
	known := map[string]int{}
	cut = make([][]piece, len(templates))
	for i, template := range templates {
		for {
			before, after, found := strings.Cut(template, "#")
			if !found {
				cut[i] = append(cut[i], piece{before, -1})
				break
			}
			class := before[strings.LastIndexByte(before, '%')+1:]
			if _, ok := known[class]; !ok {
				known[class] = len(known)
			}
			cut[i] = append(cut[i], piece{before, known[class]})
			template = after
		}
	}
	return cut, len(known)
}

// expand is the text of lines with their templates and the registers in them.
func expand(lines, registers []int, templates []string) (string, error) {
	cut, classes := pieces(templates)
	top := make([]int, classes) // as counters
	var text []byte
	next := 0
	for _, index := range lines {
		if index--; index < 0 {
			index = next
			next++
		}
		if index >= len(templates) {
			return "", errDamaged
		}
		if begins(templates[index]) {
			clear(top)
		}
		for _, p := range cut[index] {
			text = append(text, p.text...)
			if p.class < 0 {
				break
			}
			if len(registers) == 0 {
				return "", errDamaged
			}
			n := top[p.class] + 1 - (registers[0]>>1 ^ -(registers[0] & 1))
			top[p.class] = max(top[p.class], n)
			text = strconv.AppendInt(text, int64(n), 10)
			registers = registers[1:]
		}
	}
	return string(text), nil
}
