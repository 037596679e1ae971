//go:build noembed

package tiny

// files returns nil: this build carries no model, and commands ask for one by --model.
func files() map[string]string { return nil }
