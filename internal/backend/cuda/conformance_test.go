package cuda

import "testing"

// Break implements conformance.Breakable.
func (b *Backend) Break(err error) { b.fail(err) }

// TestConformance holds the kernels to the portable code.
func TestConformance(t *testing.T) { newSuite(t).Run(t, open(t, Options{})) }
