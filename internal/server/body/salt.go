package body

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
