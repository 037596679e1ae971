package cuda

import (
	"reflect"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend/gpu"
)

// TestCallBlockIsThatOfTheKernels compares the structures of the call block in the kernels with those that package gpu
// writes: same fields at the same offsets.
func TestCallBlockIsThatOfTheKernels(t *testing.T) {
	for _, pair := range [][2]reflect.Type{
		{reflect.TypeFor[callParam](), reflect.TypeFor[gpu.Head]()},
		{reflect.TypeFor[seqParam](), reflect.TypeFor[gpu.Seq]()},
		{reflect.TypeFor[recurrentParam](), reflect.TypeFor[gpu.Recurrent]()},
	} {
		kernels, written := pair[0], pair[1]
		if kernels.NumField() != written.NumField() || kernels.Size() != written.Size() {
			t.Fatalf("%v has %d fields, %v has %d", kernels, kernels.NumField(), written, written.NumField())
		}
		for i := range kernels.NumField() {
			k, w := kernels.Field(i), written.Field(i)
			if !strings.EqualFold(k.Name, w.Name) || k.Offset != w.Offset || k.Type.Kind() != w.Type.Kind() {
				t.Errorf("field %d is %s %v at %d, and %s %v at %d", i, k.Name, k.Type, k.Offset, w.Name, w.Type, w.Offset)
			}
		}
	}
}
