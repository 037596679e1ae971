//go:build noembed

package tiny

// files returns nil: this build has no embedded model, and commands require --model.
func files() map[string]string { return nil }
