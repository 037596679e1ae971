//go:build vulkan && (linux || windows)

package driver

import "unsafe"

// Structures of Vulkan on machines of 64 bits, as C lays them out: structs_test.go has their sizes and offsets. The name of a
// structure is Vulkan's without Vk. Handles of devices, queues, and command buffers are pointers, others are numbers.
type (
	pointer = unsafe.Pointer
	handle  = uint64

	applicationInfo struct {
		sType         uint32
		next          pointer
		name          *byte
		version       uint32
		engine        *byte
		engineVersion uint32
		apiVersion    uint32
	}
	instanceCreateInfo struct {
		sType      uint32
		next       pointer
		flags      uint32
		app        *applicationInfo
		layers     uint32
		layerNames pointer
		extensions uint32
		names      pointer
	}
	deviceQueueCreateInfo struct {
		sType         uint32
		next          pointer
		flags         uint32
		family, count uint32
		priorities    *float32
	}
	deviceCreateInfo struct {
		sType      uint32
		next       pointer
		flags      uint32
		queues     uint32
		queue      *deviceQueueCreateInfo
		layers     uint32
		layerNames pointer
		extensions uint32
		names      pointer
		features   pointer
	}
	// Limits are of VkPhysicalDeviceLimits only as many as are needed, by their offsets.
	physicalDeviceProperties2 struct {
		sType                                     uint32
		next                                      pointer
		api, driverVersion, vendor, product, kind uint32
		name                                      [256]byte
		cache                                     [16]byte
		_                                         [4]byte
		limits                                    [504]byte
		sparse                                    [5]uint32
		_                                         [4]byte
	}
	physicalDeviceFloatControlsProperties struct {
		sType                           uint32
		next                            pointer
		denormIndependence, roundIndep  uint32
		nan16, nan32, nan64             uint32
		denorm16, denorm32, denorm64    uint32
		flush16, flush32, flush64       uint32
		nearest16, nearest32, nearest64 uint32
		toZero16, toZero32, toZero64    uint32
	}
	physicalDeviceDriverProperties struct {
		sType       uint32
		next        pointer
		id          uint32
		name, info  [256]byte
		conformance [4]byte
	}
	physicalDeviceIDProperties struct {
		sType             uint32
		next              pointer
		device, driver    [16]byte
		luid              [8]byte
		nodeMask, hasLUID uint32
	}
	physicalDeviceFeatures2 struct {
		sType uint32
		next  pointer
		of    [55]uint32
	}
	physicalDeviceVulkan11Features struct {
		sType uint32
		next  pointer
		of    [12]uint32
	}
	physicalDeviceVulkan12Features struct {
		sType uint32
		next  pointer
		of    [47]uint32
	}
	physicalDeviceVulkan13Features struct {
		sType uint32
		next  pointer
		of    [15]uint32
	}
	physicalDeviceCooperativeMatrixFeatures struct {
		sType            uint32
		next             pointer
		matrix, robustly uint32
	}
	cooperativeMatrixProperties struct {
		sType                 uint32
		next                  pointer
		m, n, k               uint32
		a, b, c, result       uint32
		saturates, scope, pad uint32
	}
	physicalDeviceSubgroupSizeControlProperties struct {
		sType                       uint32
		next                        pointer
		least, most, groups, stages uint32
	}
	requiredSubgroupSizeInfo struct {
		sType uint32
		next  pointer
		size  uint32
	}
	memoryType struct{ flags, heap uint32 }
	memoryHeap struct {
		size  uint64
		flags uint32
	}
	physicalDeviceMemoryProperties2 struct {
		sType uint32
		next  pointer
		types uint32
		typ   [32]memoryType
		heaps uint32
		heap  [16]memoryHeap
	}
	physicalDeviceMemoryBudgetProperties struct {
		sType         uint32
		next          pointer
		budget, usage [16]uint64
	}
	queueFamilyProperties struct {
		flags, count, timestampBits uint32
		granularity                 [3]uint32
	}
	extensionProperties struct {
		name    [256]byte
		version uint32
	}
	bufferCreateInfo struct {
		sType    uint32
		next     pointer
		flags    uint32
		size     uint64
		usage    uint32
		sharing  uint32
		families uint32
		family   *uint32
	}
	memoryRequirements struct {
		size, alignment uint64
		types           uint32
	}
	memoryAllocateFlagsInfo struct {
		sType       uint32
		next        pointer
		flags, mask uint32
	}
	memoryAllocateInfo struct {
		sType uint32
		next  pointer
		size  uint64
		typ   uint32
	}
	bufferDeviceAddressInfo struct {
		sType  uint32
		next   pointer
		buffer handle
	}
	shaderModuleCreateInfo struct {
		sType uint32
		next  pointer
		flags uint32
		size  uint64
		code  *uint32
	}
	pushConstantRange        struct{ stages, offset, size uint32 }
	pipelineLayoutCreateInfo struct {
		sType  uint32
		next   pointer
		flags  uint32
		sets   uint32
		set    pointer
		pushes uint32
		push   *pushConstantRange
	}
	specializationMapEntry struct {
		id, offset uint32
		size       uint64
	}
	specializationInfo struct {
		entries uint32
		entry   *specializationMapEntry
		size    uint64
		data    pointer
	}
	pipelineShaderStageCreateInfo struct {
		sType          uint32
		next           pointer
		flags          uint32
		stage          uint32
		module         handle
		name           *byte
		specialization *specializationInfo
	}
	computePipelineCreateInfo struct {
		sType  uint32
		next   pointer
		flags  uint32
		stage  pipelineShaderStageCreateInfo
		layout handle
		base   handle
		index  int32
	}
	commandPoolCreateInfo struct {
		sType  uint32
		next   pointer
		flags  uint32
		family uint32
	}
	commandBufferAllocateInfo struct {
		sType uint32
		next  pointer
		pool  handle
		level uint32
		count uint32
	}
	commandBufferBeginInfo struct {
		sType   uint32
		next    pointer
		flags   uint32
		inherit pointer
	}
	memoryBarrier struct {
		sType    uint32
		next     pointer
		from, to uint32
	}
	queryPoolCreateInfo struct {
		sType      uint32
		next       pointer
		flags      uint32
		typ        uint32
		count      uint32
		statistics uint32
	}
	bufferCopy        struct{ from, to, size uint64 }
	semaphoreTypeInfo struct {
		sType   uint32
		next    pointer
		typ     uint32
		initial uint64
	}
	semaphoreCreateInfo struct {
		sType uint32
		next  pointer
		flags uint32
	}
	semaphoreWaitInfo struct {
		sType      uint32
		next       pointer
		flags      uint32
		count      uint32
		semaphores *handle
		values     *uint64
	}
	timelineSubmitInfo struct {
		sType   uint32
		next    pointer
		waits   uint32
		wait    *uint64
		signals uint32
		signal  *uint64
	}
	submitInfo struct {
		sType    uint32
		next     pointer
		waits    uint32
		wait     *handle
		stages   *uint32
		commands uint32
		command  *uintptr
		signals  uint32
		signal   *handle
	}
)
