package qwen35

import (
	"fmt"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/model/qwen35/vision"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/picture"
)

// BenchmarkTower measures a pass of a released tower over one image, and its longest step.
func BenchmarkTower(b *testing.B) {
	for _, size := range [][2]int{{320, 240}, {640, 480}, {1024, 1024}} {
		for _, bits := range []int{16, 8} {
			b.Run(fmt.Sprintf("shape=2b/bits=%d/picture=%dx%d", bits, size[0], size[1]), func(b *testing.B) {
				dev := backendtest.Open(b, backend.Options{})
				l := &weights.Loader{Backend: dev}
				l.Generated(weights.BitsForm(bits))
				tower := vision.New(releasedShapes[1].config().vision)
				if err := tower.Load(l); err != nil {
					b.Fatal(err)
				}
				defer l.Free()
				p, err := picture.Images().Prepare(&picture.Image{Width: size[0], Height: size[1], Pix: make([]byte, 3*size[0]*size[1])}, 1)
				if err != nil {
					b.Fatal(err)
				}
				longest, steps := time.Duration(0), 0
				for b.Loop() {
					pass, err := tower.Begin([]*picture.Patches{p})
					if err != nil {
						b.Fatal(err)
					}
					for done := false; !done; steps++ {
						before := time.Now()
						if done, err = pass.Step(); err != nil {
							b.Fatal(err)
						}
						longest = max(longest, time.Since(before))
					}
					pass.Close()
				}
				b.ReportMetric(float64(longest.Microseconds())/1e3, "ms/longest-step")
				b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(steps), "ms/step")
				b.ReportMetric(float64(p.Rows())*float64(b.N)/b.Elapsed().Seconds(), "patches/s")
			})
		}
	}
}
