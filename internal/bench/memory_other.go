//go:build !unix

package bench

func residentMemory(any) int64 { return 0 }

func ownMemory() int64 { return 0 }
