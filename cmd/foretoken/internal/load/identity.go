package load

import (
	"path/filepath"

	"github.com/foretoken/foretoken/internal/backend/remote/link"
)

// Identity is the key of this machine, in the folder for state. It is made at the first call; without a folder it ends with
// the process.
func Identity(folder string) (*link.Identity, error) {
	if folder == "" {
		return link.New()
	}
	return link.Open(filepath.Join(folder, "node.key"))
}
