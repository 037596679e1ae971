//go:build !linux && !darwin

package checkpoint

import "os"

// stampOf knows nothing here: without the time at which a file was changed, which nobody can
// set, a record about it could be made to lie. Files are read into memory of ours, and hashed
// there each time.
func stampOf(*os.File) (stamp, bool) { return stamp{}, false }
