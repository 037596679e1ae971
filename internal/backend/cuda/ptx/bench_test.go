package ptx

import "testing"

// BenchmarkKernels reports instructions of threads per second.
func BenchmarkKernels(b *testing.B) {
	for _, kernel := range []string{"norm", "deltaRecur", "attPage4", "relay4", "tile4", "candidates"} {
		b.Run("kernel="+kernel, func(b *testing.B) {
			m, err := study()
			if err != nil {
				b.Fatal(err)
			}
			r := &rig{TB: b, m: NewMachine(Options{}), module: m}
			again := r.record(scenes[kernel])
			before := r.m.Stats()
			for b.Loop() {
				if err := r.m.Launch(again); err != nil {
					b.Fatal(err)
				}
			}
			n := r.m.Stats().Lanes - before.Lanes
			b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mlanes/s")
			b.ReportMetric(float64(n)/float64(b.N), "lanes/op")
		})
	}
}
