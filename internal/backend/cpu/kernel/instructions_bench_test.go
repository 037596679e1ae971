package kernel

import (
	"bufio"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// counted is set for these benchmarks: 1, or the path of another test program of this package for arm64 on Linux.
var counted = os.Getenv("FORETOKEN_COUNT")

// BenchmarkTile multiplies a tile of 16 outputs in every instruction set. BenchmarkInstructions counts the instructions, between calls
// of Pause.
func BenchmarkTile(b *testing.B) {
	if counted == "" {
		return
	}
	r := rand.New(rand.NewPCG(4, 1))
	for _, f := range []string{"affine4", "affine8", "Q4_0", "Q4_K", "Q6_K", "Q5_K", "Q3_K", "Q2_K", "IQ4_XS", "IQ2_XS"} {
		for _, set := range accelerated(runnable()) {
			for _, m := range []int{1, 2, 3, 4, 6, 8, 16} {
				for _, k := range []int{512, 1024} {
					b.Run(fmt.Sprintf("type=%s/isa=%s/m=%d/k=%d", f, set.Name, m, k), func(b *testing.B) {
						var matrix dtype.Matrix
						if bits, ok := strings.CutPrefix(f, "affine"); ok {
							matrix = integerMatrix(b, Tile, k, int(bits[0]-'0'))
						}
						for _, format := range blockFormats {
							if format.String() == f {
								matrix = randomBlocks(blockCase{format: format, rows: Tile, cols: k}, r)
							}
						}
						w := packed(b, integers, heap, matrix)
						x := Rows{Data: make([]float32, m*k), N: m, Cols: k, Stride: k}
						for i := range x.Data {
							x.Data[i] = float32(r.NormFloat64())
						}
						a := quantized(&set, x, w)
						var s Scratch
						out := make([]float32, (m+Tile)*Tile)
						for b.Loop() {
							Pause()
							set.Integer(out, w, 0, 0, 1, a, &s)
							Pause()
						}
					})
				}
			}
		}
	}
}

// executed counts the instructions of a call for arm64 by what limits them. A load to all lanes is a load and a vector instruction.
type executed struct{ all, vector, load, store int }

// add counts an instruction by its class in the encoding: loads have prefetches among them.
func (e *executed) add(code uint32) {
	e.all++
	switch {
	case code>>25&7 == 7: // vectors and floats
		e.vector++
	case code>>27&1 == 1 && code>>25&1 == 0: // memory
		loads := code>>22&1 == 1
		if code>>27&7 == 7 && code>>26&1 == 0 { // one register: loads with a sign, and prefetches
			loads = code>>22&3 != 0
		} else if code>>27&7 == 3 { // relative to the program counter
			loads = true
		}
		if loads {
			e.load++
			if code&0xbf60e000 == 0x0d40c000 { // to all lanes of a register
				e.vector++
			}
		} else {
			e.store++
		}
	}
}

// perUnit is instructions and cycles of 64 columns of a row: the difference of calls with 512 and 1024 columns. A cycle has at
// most eight instructions, of them four of vectors, three loads and two stores.
func perUnit(short, long executed, rows int) (instructions, cycles float64) {
	of := func(long, short int) float64 { return float64(long-short) / 8 / float64(rows) }
	instructions = of(long.all, short.all)
	return instructions, max(instructions/8, of(long.vector, short.vector)/4, of(long.load, short.load)/3, of(long.store, short.store)/2)
}

// BenchmarkInstructions counts what the products of arm64 execute in qemu, which logs every instruction: instructions and
// cycles of 64 columns of 16 outputs and a row, by the model of perUnit. It takes two minutes.
func BenchmarkInstructions(b *testing.B) {
	if counted == "" {
		return
	}
	qemu, err := exec.LookPath("qemu-aarch64-static")
	if err != nil {
		b.Fatal(err)
	}
	program := counted
	if program == "1" {
		program = filepath.Join(b.TempDir(), "kernel.test")
		c := exec.Command("go", "test", "-vet", "off", "-c", "-o", program, ".")
		c.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
		if text, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, text)
		}
	}
	file, err := elf.Open(program)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // read only
	text := file.Section(".text")
	code, err := text.Data()
	if err != nil {
		b.Fatal(err)
	}
	symbols, err := file.Symbols()
	if err != nil {
		b.Fatal(err)
	}
	first, end, pause := ^uint64(0), uint64(0), uint64(0) // kernels are one range
	for _, s := range symbols {
		name, _ := strings.CutPrefix(s.Name, "github.com/foretoken/foretoken/internal/backend/cpu/kernel.")
		name, assembly := strings.CutSuffix(name, ".abi0")
		switch {
		case assembly && name == "Pause":
			pause = s.Value
		case assembly && (strings.HasPrefix(name, "integer") || strings.HasPrefix(name, "super")), strings.HasPrefix(s.Name, "superFactors"): // subroutines have no package
			first, end = min(first, s.Value), max(end, s.Value+s.Size)
		}
	}
	c := exec.Command(qemu, "-cpu", "max", "-singlestep", "-d", "exec,nochain", "-dfilter", fmt.Sprintf("%#x..%#x,%#x+4", first, end, pause),
		program, "-test.run", "-", "-test.bench", "^BenchmarkTile$", "-test.benchtime", "1x")
	c.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1") // lines of threads would mix
	var said strings.Builder
	c.Stdout = &said
	log, err := c.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	var calls []executed
	counting := false
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var at uint64
		_, rest, _ := strings.Cut(lines.Text(), "/")
		address, _, _ := strings.Cut(rest, "/")
		if _, err := fmt.Sscanf(address, "%x", &at); err != nil || !strings.HasPrefix(lines.Text(), "Trace ") {
			continue
		}
		if at == pause {
			if counting = !counting; counting {
				calls = append(calls, executed{})
			}
		} else if counting {
			calls[len(calls)-1].add(binary.LittleEndian.Uint32(code[at-text.Addr:]))
		}
	}
	if err := c.Wait(); err != nil {
		b.Fatalf("%v\n%s", err, said.String())
	}
	next := 0
	for line := range strings.Lines(said.String()) {
		var rows, columns int
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "BenchmarkTile/"), " ")
		what, counts, isCase := strings.Cut(name, "/m=")
		if _, err := fmt.Sscanf(counts, "%d/k=%d", &rows, &columns); !isCase || err != nil {
			continue
		}
		if next++; columns == 1024 && next <= len(calls) {
			instructions, cycles := perUnit(calls[next-2], calls[next-1], rows)
			b.Logf("%s %d rows: %.0f / %.1f", what, rows, instructions, cycles)
		}
	}
	if next != cmp.Or(len(calls), -1) {
		b.Errorf("%d cases, %d calls", next, len(calls))
	}
}
