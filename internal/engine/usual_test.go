//go:build !long

package engine

const long = false

// Long is long, for tests outside of the package.
const Long = long
