package body

import "github.com/foretoken/foretoken"

// CacheSalt reads a request's field cache_salt, which other servers have by the same name: a
// string that is not empty. Without one it is "".
func CacheSalt(v *Value) string {
	f := v.Field("cache_salt")
	salt := f.Text()
	if salt == "" && !f.Absent() {
		f.Fault("the string is empty: leave it out to share the prefix cache with all requests without a salt")
	}
	return salt
}

// Depth reads a request's field mtp_depth: "auto", or the number of tokens to draft per round.
func Depth(v *Value) foretoken.Depth {
	f := v.Field("mtp_depth")
	switch n, ok := f.whole(); {
	case f.Absent():
		return foretoken.DepthDefault
	case string(f.raw) == `"auto"`:
		return foretoken.DepthAuto
	case !ok || n < 0 || n > foretoken.MaxDepth:
		f.Fault(`%.20s, want 0 to %d, or "auto"`, f.raw, foretoken.MaxDepth)
	case n > 0:
		return foretoken.Depth(n)
	}
	return foretoken.DepthOff
}
