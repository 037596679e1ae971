package kernel

import "golang.org/x/sys/windows"

var isProcessorFeaturePresent = windows.NewLazySystemDLL("kernel32.dll").NewProc("IsProcessorFeaturePresent")

// hasI8MM asks Windows, whose answer package cpu does not have. An older Windows knows nothing of the extension and denies it.
func hasI8MM() bool {
	const armI8MM = 66 // PF_ARM_V82_I8MM_INSTRUCTIONS_AVAILABLE
	present, _, _ := isProcessorFeaturePresent.Call(armI8MM)
	return present != 0
}
