//go:build vulkan

package driver

import "github.com/ebitengine/purego"

const libraryName = "libvulkan.so.1"

func openLibrary() (uintptr, error) {
	return purego.Dlopen(libraryName, purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

func findSymbol(library uintptr, name string) (uintptr, error) { return purego.Dlsym(library, name) }
