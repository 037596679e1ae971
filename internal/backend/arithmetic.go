package backend

import "fmt"

// The arithmetic of the operations is defined once, by the portable Go code, and every
// instruction set and device keeps to it. It has a version: results stored under another version
// must not be used. Tests record the bits of the operations, and those of
// whole models with their heads and of their state. If a change alters bits on purpose,
// these tests print the new values for these constants. A new operation changes the digest and
// keeps the version.
const (
	ArithmeticVersion        = 3
	OperationBits     uint64 = 0x6c6333482c168f08 // digest of the bits of TestBitsAreTheSameEverywhere
	NetworkBits       uint64 = 0x0b64b2b6ef0e8f34 // digest of the bits of TestNetworkBitsAreRecorded
)

// Arithmetic names the arithmetic: its version, and the digests of the bits recorded for it.
// Equal names mean equal bits, even if the version was not raised.
func Arithmetic() string {
	return fmt.Sprintf("%d-%016x-%016x", ArithmeticVersion, OperationBits, NetworkBits)
}
