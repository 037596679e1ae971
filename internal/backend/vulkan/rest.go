package vulkan

import "github.com/foretoken/foretoken/internal/backend"

// Experts implements backend.Ops.
func (b *Backend) Experts(dst, x, router backend.Tensor, e *backend.Experts) {
	backend.CheckExperts(dst, x, router, e)
	b.missing("experts")
}
