//go:build vulkan && (linux || windows)

package driver

import (
	"reflect"
	"slices"
	"testing"
)

// TestStructuresAreThoseOfC compares structures with the sizes and the offsets of fields that a C compiler gives those of Vulkan's
// header, version 1.3.239. Fields that are structures of C and written out here have their first offsets.
func TestStructuresAreThoseOfC(t *testing.T) {
	for _, c := range []struct {
		of   any
		want []uintptr // the size, then offsets
	}{
		{applicationInfo{}, []uintptr{48, 0, 8, 16, 24, 32, 40, 44}},
		{instanceCreateInfo{}, []uintptr{64, 0, 8, 16, 24, 32, 40, 48, 56}},
		{deviceQueueCreateInfo{}, []uintptr{40, 0, 8, 16, 20, 24, 32}},
		{deviceCreateInfo{}, []uintptr{72, 0, 8, 16, 20, 24, 32, 40, 48, 56, 64}},
		{physicalDeviceProperties2{}, []uintptr{840}},
		{physicalDeviceFloatControlsProperties{}, []uintptr{88, 0, 8, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 68, 72, 76, 80}},
		{physicalDeviceDriverProperties{}, []uintptr{536, 0, 8, 16, 20, 276, 532}},
		{physicalDeviceIDProperties{}, []uintptr{64, 0, 8, 16, 32, 48, 56, 60}},
		{physicalDeviceFeatures2{}, []uintptr{240}},
		{physicalDeviceVulkan11Features{}, []uintptr{64}},
		{physicalDeviceVulkan12Features{}, []uintptr{208}},
		{physicalDeviceVulkan13Features{}, []uintptr{80}},
		{physicalDeviceCooperativeMatrixFeatures{}, []uintptr{24, 0, 8, 16, 20}},
		{cooperativeMatrixProperties{}, []uintptr{56, 0, 8, 16, 20, 24, 28, 32, 36, 40, 44, 48}},
		{physicalDeviceSubgroupSizeControlProperties{}, []uintptr{32, 0, 8, 16, 20, 24, 28}},
		{requiredSubgroupSizeInfo{}, []uintptr{24, 0, 8, 16}},
		{memoryType{}, []uintptr{8, 0, 4}},
		{memoryHeap{}, []uintptr{16, 0, 8}},
		{physicalDeviceMemoryProperties2{}, []uintptr{536}},
		{queueFamilyProperties{}, []uintptr{24, 0, 4, 8, 12}},
		{extensionProperties{}, []uintptr{260, 0, 256}},
		{bufferCreateInfo{}, []uintptr{56, 0, 8, 16, 24, 32, 36, 40, 48}},
		{memoryRequirements{}, []uintptr{24, 0, 8, 16}},
		{memoryAllocateFlagsInfo{}, []uintptr{24, 0, 8, 16, 20}},
		{memoryAllocateInfo{}, []uintptr{32, 0, 8, 16, 24}},
		{bufferDeviceAddressInfo{}, []uintptr{24, 0, 8, 16}},
		{shaderModuleCreateInfo{}, []uintptr{40, 0, 8, 16, 24, 32}},
		{pushConstantRange{}, []uintptr{12, 0, 4, 8}},
		{pipelineLayoutCreateInfo{}, []uintptr{48, 0, 8, 16, 20, 24, 32, 40}},
		{specializationMapEntry{}, []uintptr{16, 0, 4, 8}},
		{specializationInfo{}, []uintptr{32, 0, 8, 16, 24}},
		{pipelineShaderStageCreateInfo{}, []uintptr{48, 0, 8, 16, 20, 24, 32, 40}},
		{computePipelineCreateInfo{}, []uintptr{96, 0, 8, 16, 24, 72, 80, 88}},
		{commandPoolCreateInfo{}, []uintptr{24, 0, 8, 16, 20}},
		{commandBufferAllocateInfo{}, []uintptr{32, 0, 8, 16, 24, 28}},
		{commandBufferBeginInfo{}, []uintptr{32, 0, 8, 16, 24}},
		{memoryBarrier{}, []uintptr{24, 0, 8, 16, 20}},
		{queryPoolCreateInfo{}, []uintptr{32, 0, 8, 16, 20, 24, 28}},
		{bufferCopy{}, []uintptr{24, 0, 8, 16}},
		{semaphoreTypeInfo{}, []uintptr{32, 0, 8, 16, 24}},
		{semaphoreCreateInfo{}, []uintptr{24, 0, 8, 16}},
		{semaphoreWaitInfo{}, []uintptr{40, 0, 8, 16, 20, 24, 32}},
		{timelineSubmitInfo{}, []uintptr{48, 0, 8, 16, 24, 32, 40}},
		{submitInfo{}, []uintptr{72, 0, 8, 16, 24, 32, 40, 48, 56, 64}},
		{physicalDeviceMemoryBudgetProperties{}, []uintptr{272, 0, 8, 16, 144}},
	} {
		typ := reflect.TypeOf(c.of)
		got := []uintptr{typ.Size()}
		for i := range typ.NumField() {
			if f := typ.Field(i); f.Name != "_" {
				got = append(got, f.Offset)
			}
		}
		if !slices.Equal(got[:min(len(got), len(c.want))], c.want) {
			t.Errorf("%v has size and offsets %v, want %v", typ, got, c.want)
		}
	}
	if f, ok := reflect.TypeFor[physicalDeviceProperties2]().FieldByName("limits"); !ok || f.Offset != 16+296 {
		t.Errorf("limits are at %d", f.Offset)
	}
}
