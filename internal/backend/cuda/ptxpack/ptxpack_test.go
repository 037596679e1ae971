package ptxpack

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
)

const text = `.version 7.8
.visible .entry twice(
	.param .u64 twice_param_0
)
{
	.reg .b32 	%r<9>;
	mov.u32 	%r1, %tid.x;
	add.s32 	%r2, %r1, %r1;
	ld.global.v2.f32 	{%f3, %f1}, [%rd1+8];
	mov.b32 	%r20000, %r007;
}
.visible .entry again()
{
	mov.u32 	%r1, %tid.x;
}
`

func TestUnpackReturnsTheTextWithoutComments(t *testing.T) {
	for _, s := range []string{"", "\n", "no line end %r12", text, text + text} {
		packed, err := Pack("// first\n" + s)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Unpack(bytes.NewReader(packed)); err != nil || got != s {
			t.Errorf("%q, %v, want %q", got, err, s)
		}
	}
}

func TestPackRefusesWhatItCannotStore(t *testing.T) {
	for _, s := range []string{"a # b", "mov %r70000, %r1;"} {
		if _, err := Pack(s); err == nil {
			t.Errorf("%q is packed", s)
		}
	}
}

func FuzzPack(f *testing.F) {
	f.Add(text)
	f.Fuzz(func(t *testing.T, s string) {
		packed, err := Pack(s)
		if err != nil {
			return
		}
		var want strings.Builder
		for line := range strings.Lines(s) {
			if !strings.HasPrefix(strings.TrimSpace(line), "//") {
				want.WriteString(line)
			}
		}
		if got, err := Unpack(bytes.NewReader(packed)); err != nil || got != want.String() {
			t.Errorf("%q, %v, want %q", got, err, want.String())
		}
	})
}

func FuzzUnpack(f *testing.F) {
	packed, err := Pack(text)
	if err != nil {
		f.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		f.Fatal(err)
	}
	var plain bytes.Buffer
	if _, err := plain.ReadFrom(z); err != nil {
		f.Fatal(err)
	}
	f.Add(plain.Bytes())
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 'x'})
	f.Add([]byte{255, 255, 255, 255, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, data []byte) {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, _ = z.Write(data) // a buffer takes everything
		_ = z.Close()
		_, _ = Unpack(&out) // damaged files give errors, or another text
	})
}
