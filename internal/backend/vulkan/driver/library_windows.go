//go:build vulkan

package driver

import "syscall"

const libraryName = "vulkan-1.dll"

func openLibrary() (uintptr, error) {
	handle, err := syscall.LoadLibrary(libraryName)
	return uintptr(handle), err
}

func findSymbol(library uintptr, name string) (uintptr, error) {
	return syscall.GetProcAddress(syscall.Handle(library), name)
}
