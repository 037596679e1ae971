package dtype

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// blockMatrix is a matrix of random blocks whose halves are mild.
func blockMatrix(f Format, rows, blocks int, r *rand.Rand) Matrix {
	b := f.block()
	m := NewBlocks(f, rows, blocks*b.columns)
	m.Data = make([]byte, rows*m.RowBytes())
	for i := range m.Data {
		m.Data[i] = byte(r.Uint32())
	}
	for at := 0; at < len(m.Data); at += b.bytes {
		if f == MXFP4Blocks {
			m.Data[at] = byte(120 + r.IntN(10))
		}
		f.PutHalves(m.Data[at:], func() uint16 { return ToF16(float32(r.NormFloat64())) })
	}
	return m
}

// allRows are the numbers of a matrix as bits: negative zeros count.
func allRows(m *Matrix) []uint32 {
	v := make([]float32, m.Cols)
	var all []uint32
	for r := range m.Rows {
		m.Row(v, r)
		for _, x := range v {
			all = append(all, math.Float32bits(x))
		}
	}
	return all
}

// eachBlockFormat tests every block format by its name.
func eachBlockFormat(t *testing.T, test func(t *testing.T, f Format, r *rand.Rand)) {
	for i := range blockFormats {
		f := Q4_0 + Format(i)
		t.Run("format="+f.String(), func(t *testing.T) { test(t, f, rand.New(rand.NewPCG(61, uint64(i)))) })
	}
}

func TestBlocksAreWholeMatrices(t *testing.T) {
	eachBlockFormat(t, func(t *testing.T, f Format, r *rand.Rand) {
		m := blockMatrix(f, 7, 3, r)
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		all, n := allRows(&m), m.Cols
		part := m.RowRange(2, 5)
		if err := part.Validate(); err != nil || !slices.Equal(allRows(&part), all[2*n:5*n]) {
			t.Errorf("rows 2 to 4 are others: %v", err)
		}
		some := m.Gather([]int{6, 0})
		if err := some.Validate(); err != nil || !slices.Equal(allRows(&some), slices.Concat(all[6*n:], all[:n])) {
			t.Errorf("rows 6 and 0 are others: %v", err)
		}
	})
}

// TestArrangeKeepsNumbers: pieces of several blocks, of one, and of parts of one keep their numbers,
// and stay coded if possible; a matrix without data gets the form.
func TestArrangeKeepsNumbers(t *testing.T) {
	order := []int{2, 0, 3, 1}
	check := func(t *testing.T, m *Matrix, size int, want Format) {
		t.Helper()
		got, before := m.Arrange(order), allRows(m)
		if err := got.Validate(); err != nil || got.Format != want {
			t.Fatalf("pieces of %d are %v, want %v: %v", size, got.Format, want, err)
		}
		var after []uint32
		for r := range m.Rows {
			for _, i := range order {
				after = append(after, before[r*m.Cols+i*size:][:size]...)
			}
		}
		if !slices.Equal(allRows(&got), after) {
			t.Errorf("pieces of %d have other numbers", size)
		}
		bare := *m
		bare.Data = nil
		form := bare.Arrange(order)
		got.Data, got.Scales, got.Biases = nil, nil, nil
		if !reflect.DeepEqual(form, got) {
			t.Errorf("without data pieces of %d are %+v, want %+v", size, form, got)
		}
	}
	eachBlockFormat(t, func(t *testing.T, f Format, r *rand.Rand) {
		b := f.block()
		for _, size := range []int{2 * b.columns, b.columns, b.columns / 2, b.columns / 4, 8} {
			want := f
			_, affine := (&Matrix{Format: f}).AffineForm()
			switch {
			case size%b.columns == 0:
			case affine && size%b.group == 0:
				want = Affine
			default:
				want = Plain
			}
			if m := blockMatrix(f, 3, max(1, 4*size/b.columns), r); m.Cols == 4*size {
				check(t, &m, size, want)
			}
		}
	})
	m := Matrix{Rows: 3, Cols: 20, Type: BF16, Data: make([]byte, 3*20*2)}
	for i := range m.Data {
		m.Data[i] = byte(i % 60)
	}
	check(t, &m, 5, Plain)
}

// TestWidenKeepsNumbers: as Affine blocks are the same numbers.
func TestWidenKeepsNumbers(t *testing.T) {
	eachBlockFormat(t, func(t *testing.T, f Format, r *rand.Rand) {
		m := blockMatrix(f, 5, 2, r)
		want := allRows(&m)
		if _, wide := m.AffineForm(); wide == (f.Leveled() || f.E2M1()) {
			t.Fatalf("affine: %v", wide)
		} else if !wide {
			return
		}
		a := m.Widen()
		if err := a.Validate(); err != nil || !slices.Equal(allRows(&a), want) {
			t.Errorf("widened they are others: %v", err)
		}
	})
}

func TestSoundFindsDamage(t *testing.T) {
	eachBlockFormat(t, func(t *testing.T, f Format, r *rand.Rand) {
		for i := range f.block().halves {
			for _, bad := range []uint16{0x7c00, 0xfc00, 0x7e01} {
				m := blockMatrix(f, 4, 2, r)
				if err := m.Sound(0, 4); err != nil {
					t.Fatal(err)
				}
				n := 0
				f.PutHalves(m.Data[2*m.RowBytes()+f.block().bytes:], func() uint16 {
					if n++; n == i+1 {
						return bad
					}
					return 0x3c00
				})
				if err := m.Sound(0, 4); err == nil || !strings.HasPrefix(err.Error(), "row 2: a block has scale or bias") {
					t.Errorf("%#x as half %d: %v", bad, i, err)
				}
				if err := m.Sound(3, 4); err != nil {
					t.Errorf("other rows: %v", err)
				}
			}
		}
	})
}

// TestSoundFindsExponents: the exponent of no number is damage.
func TestSoundFindsExponents(t *testing.T) {
	m := blockMatrix(MXFP4Blocks, 4, 2, rand.New(rand.NewPCG(62, 1)))
	if err := m.Sound(0, 4); err != nil {
		t.Fatal(err)
	}
	m.Data[2*m.RowBytes()+17] = 255
	if err := m.Sound(0, 4); err == nil || !strings.HasPrefix(err.Error(), "row 2: a block has the exponent 255") {
		t.Errorf("%v", err)
	}
	if err := m.Sound(3, 4); err != nil {
		t.Errorf("other rows: %v", err)
	}
}

// TestGlobalScalesBlocks: the factor of a matrix multiplies every number.
func TestGlobalScalesBlocks(t *testing.T) {
	m := blockMatrix(NVFP4Blocks, 2, 2, rand.New(rand.NewPCG(63, 1)))
	before := allRows(&m)
	m.Global = 0.75
	for i, x := range allRows(&m) {
		if want := math.Float32frombits(before[i]) * 0.75; math.Float32frombits(x) != want {
			t.Fatalf("number %d is %g, want %g", i, math.Float32frombits(x), want)
		}
	}
}

func TestBlocksRefuse(t *testing.T) {
	for _, c := range []struct {
		edit func(m *Matrix)
		want string
	}{
		{func(m *Matrix) { m.Cols = 300 }, "300 columns is not a whole number of blocks of 256"},
		{func(m *Matrix) { m.Group = 64 }, "in groups of 64, want F32 in groups of 32"},
		{func(m *Matrix) { m.ScaleType = F16 }, "with scales of F16"},
		{func(m *Matrix) { m.Data = m.Data[:len(m.Data)-1] }, "data has 575 bytes, want 576"},
		{func(m *Matrix) { m.Scales = make([]byte, 4) }, "scales has 4 bytes, want 0"},
		{func(m *Matrix) { m.Format = Q4_0 + Format(len(blockFormats)) }, "unknown format"},
	} {
		m := blockMatrix(Q4K, 2, 2, rand.New(rand.NewPCG(1, 1)))
		c.edit(&m)
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
