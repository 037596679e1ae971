package cuda

import "testing"

// Break implements backendtest.Breakable.
func (b *Backend) Break(err error) { b.fail(err) }

// TestConformance holds the kernels to the portable code.
func TestConformance(t *testing.T) {
	newSuite(t).Without("Embed with a factor", "Draw and EmbedDrawn", "NormAdd", "GLU", "Cap", "Experts with options", "Attend without keys").Run(t, open(t, Options{}))
}
