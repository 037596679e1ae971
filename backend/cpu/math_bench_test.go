package cpu

import "testing"

func BenchmarkAxpy(b *testing.B) {
	x, y := make([]float32, 256), make([]float32, 256)
	for i := range x {
		x[i] = float32(i%17) * 0.37
	}
	for b.Loop() {
		axpy(y, x, 1e-9)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/fma")
}

func BenchmarkDot(b *testing.B) {
	x := make([]float32, 256)
	for i := range x {
		x[i] = float32(i%17) * 0.37
	}
	for b.Loop() {
		dot(x, x)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/fma")
}
