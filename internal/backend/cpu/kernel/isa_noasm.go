//go:build noasm || !(amd64 || arm64)

package kernel

// Sets lists portable Go only.
func Sets() []Set { return []Set{Generic} }
