//go:build vulkan && (linux || windows)

package driver

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// A function of Vulkan, by its place in functions.
type function int

const (
	createInstance function = iota
	destroyInstance
	enumeratePhysicalDevices
	getProperties
	getFeatures
	getMemoryProperties
	getQueueFamilies
	enumerateExtensions
	createDevice
	getDeviceProcAddr
	// The functions of devices follow.
	destroyDevice
	getQueue
	createBuffer
	destroyBuffer
	getBufferRequirements
	getBufferAddress
	allocateMemory
	freeMemory
	bindBufferMemory
	mapMemory
	createShaderModule
	destroyShaderModule
	createPipelineLayout
	destroyPipelineLayout
	createComputePipelines
	destroyPipeline
	createCommandPool
	destroyCommandPool
	allocateCommandBuffers
	freeCommandBuffers
	beginCommandBuffer
	endCommandBuffer
	cmdBindPipeline
	cmdPushConstants
	cmdDispatch
	cmdPipelineBarrier
	cmdCopyBuffer
	cmdFillBuffer
	queueSubmit
	createSemaphore
	destroySemaphore
	waitSemaphores
	deviceWaitIdle
	createQueryPool
	destroyQueryPool
	getQueryResults
	cmdResetQueryPool
	cmdWriteTimestamp
	functionCount
)

var functions = [functionCount]string{
	"vkCreateInstance", "vkDestroyInstance", "vkEnumeratePhysicalDevices", "vkGetPhysicalDeviceProperties2", "vkGetPhysicalDeviceFeatures2",
	"vkGetPhysicalDeviceMemoryProperties2", "vkGetPhysicalDeviceQueueFamilyProperties", "vkEnumerateDeviceExtensionProperties", "vkCreateDevice", "vkGetDeviceProcAddr",
	"vkDestroyDevice", "vkGetDeviceQueue", "vkCreateBuffer", "vkDestroyBuffer", "vkGetBufferMemoryRequirements", "vkGetBufferDeviceAddress",
	"vkAllocateMemory", "vkFreeMemory", "vkBindBufferMemory", "vkMapMemory", "vkCreateShaderModule", "vkDestroyShaderModule",
	"vkCreatePipelineLayout", "vkDestroyPipelineLayout", "vkCreateComputePipelines", "vkDestroyPipeline", "vkCreateCommandPool", "vkDestroyCommandPool",
	"vkAllocateCommandBuffers", "vkFreeCommandBuffers", "vkBeginCommandBuffer", "vkEndCommandBuffer", "vkCmdBindPipeline", "vkCmdPushConstants",
	"vkCmdDispatch", "vkCmdPipelineBarrier", "vkCmdCopyBuffer", "vkCmdFillBuffer", "vkQueueSubmit", "vkCreateSemaphore", "vkDestroySemaphore",
	"vkWaitSemaphores", "vkDeviceWaitIdle", "vkCreateQueryPool", "vkDestroyQueryPool", "vkGetQueryPoolResults", "vkCmdResetQueryPool",
	"vkCmdWriteTimestamp",
}

// minAPI is Vulkan 1.3, which has integer dot products and timeline semaphores.
const minAPI = 1<<22 | 3<<12

// table is the functions, of the loader or of a device.
type table [functionCount]uintptr

// do calls a function that returns a result. Memory behind its arguments does not move until it returns.
//
//go:uintptrescapes
func (t *table) do(f function, args ...uintptr) error { return t.call(f, args) }

// call is do with a slice of arguments.
func (t *table) call(f function, args []uintptr) error {
	if r, _, _ := purego.SyscallN(t[f], args...); int32(r) != 0 {
		return &Error{Call: functions[f], Code: Result(int32(r))}
	}
	return nil
}

// run calls a function without a result.
//
//go:uintptrescapes
func (t *table) run(f function, args ...uintptr) { purego.SyscallN(t[f], args...) }

// address calls a function that returns an address.
//
//go:uintptrescapes
func (t *table) address(f uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(f, args...)
	return r
}

// name is a text as C has it.
func name(s string) *byte { return &append([]byte(s), 0)[0] }

// library is Vulkan's loader with an instance.
type library struct {
	table
	instance uintptr
	devices  []uintptr
	matrices uintptr // the function that lists cooperative matrices; 0: there is none
}

// Library opens the system's Vulkan loader, which finds the drivers of GPUs. If there is none, the error says so.
func Library() (Driver, error) {
	loader, err := openLibrary()
	if err != nil {
		return nil, fmt.Errorf("%s not found: install the driver of the GPU, and Vulkan's loader (on Debian: libvulkan1)", libraryName)
	}
	find, err := findSymbol(loader, "vkGetInstanceProcAddr")
	if err != nil {
		return nil, fmt.Errorf("%s is not a Vulkan loader: %w", libraryName, err)
	}
	l := &library{}
	l.table[createInstance] = l.address(find, 0, uintptr(unsafe.Pointer(name(functions[createInstance]))))
	app := &applicationInfo{name: name("foretoken"), apiVersion: minAPI}
	instance := new(uintptr)
	if err := l.do(createInstance, uintptr(unsafe.Pointer(&instanceCreateInfo{sType: 1, app: app})), 0, uintptr(unsafe.Pointer(instance))); err != nil {
		return nil, err
	}
	l.instance = *instance
	for f := range functions {
		if function(f) == createInstance {
			continue
		}
		if l.table[f] = l.address(find, l.instance, uintptr(unsafe.Pointer(name(functions[f])))); l.table[f] == 0 {
			return nil, fmt.Errorf("%s has no %s: install a newer one (Vulkan %s)", libraryName, functions[f], APIVersion(minAPI))
		}
	}
	l.matrices = l.address(find, l.instance, uintptr(unsafe.Pointer(name("vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"))))
	count := new(uint32)
	if err := l.do(enumeratePhysicalDevices, l.instance, uintptr(unsafe.Pointer(count)), 0); err != nil {
		return nil, err
	}
	if *count > 0 {
		l.devices = make([]uintptr, *count)
		if err := l.do(enumeratePhysicalDevices, l.instance, uintptr(unsafe.Pointer(count)), uintptr(unsafe.Pointer(&l.devices[0]))); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// features are those of a device, in one chain.
type features struct {
	core physicalDeviceFeatures2
	v11  physicalDeviceVulkan11Features
	v12  physicalDeviceVulkan12Features
	v13  physicalDeviceVulkan13Features
	coop physicalDeviceCooperativeMatrixFeatures // only of devices with this extension
}

// Features by their places in the structures.
const (
	robustBufferAccess = 0  // core
	shaderFloat64      = 39 // core
	shaderInt64        = 40 // core
	storage16          = 0  // 1.1
	storage8           = 2  // 1.2
	shaderInt8         = 8  // 1.2
	timelineSemaphore  = 37 // 1.2
	bufferAddress      = 38 // 1.2
	memoryModel        = 41 // 1.2
	subgroupSize       = 7  // 1.3
	fullSubgroups      = 8  // 1.3
	dotProduct         = 13 // 1.3
)

func (l *library) features(device uintptr) *features {
	f := &features{}
	f.v13.sType = 53
	if l.extension(device, matrixExtension) {
		f.coop.sType, f.v13.next = 1000506000, unsafe.Pointer(&f.coop)
	}
	f.v12.sType, f.v12.next = 51, unsafe.Pointer(&f.v13)
	f.v11.sType, f.v11.next = 49, unsafe.Pointer(&f.v12)
	f.core.sType, f.core.next = 1000059000, unsafe.Pointer(&f.v11)
	l.run(getFeatures, device, uintptr(unsafe.Pointer(&f.core)))
	return f
}

// Devices implements Driver.
func (l *library) Devices() ([]Info, error) {
	var list []Info
	for _, device := range l.devices {
		list = append(list, l.describe(device))
	}
	return list, nil
}

func (l *library) describe(device uintptr) Info {
	ids := &physicalDeviceIDProperties{sType: 1000071004}
	controls := &physicalDeviceFloatControlsProperties{sType: 1000197000, next: unsafe.Pointer(ids)}
	of := &physicalDeviceDriverProperties{sType: 1000196000, next: unsafe.Pointer(controls)}
	p := &physicalDeviceProperties2{sType: 1000059001, next: unsafe.Pointer(of)}
	l.run(getProperties, device, uintptr(unsafe.Pointer(p)))
	runtime.KeepAlive(p)
	i := Info{
		Name: text(p.name[:]), Driver: strings.TrimSpace(text(of.name[:]) + " " + text(of.info[:])), Vendor: p.vendor, Product: p.product, Version: p.driverVersion,
		UUID: ids.driver, API: p.api, Kind: Kind(p.kind), Keeps: Controls{Denorms: controls.denorm32 != 0, NaN: controls.nan32 != 0, Nearest: controls.nearest32 != 0},
	}
	if p.api < minAPI {
		i.Missing = fmt.Sprintf("Vulkan %s, the kernels need %s: install a newer driver", APIVersion(p.api), APIVersion(minAPI))
		return i
	}
	f := l.features(device)
	i.Float64, i.Matrix = f.core.of[shaderFloat64] != 0, l.matrix(device, f)
	for _, need := range []struct {
		has  uint32
		what string
	}{
		{f.core.of[shaderInt64], "integers of 64 bits"},
		{f.v11.of[storage16], "storage of 16 bits"},
		{f.v12.of[storage8], "storage of 8 bits"},
		{f.v12.of[timelineSemaphore], "timeline semaphores"},
		{f.v12.of[bufferAddress], "addresses of buffers"},
		{f.v13.of[dotProduct], "integer dot products"},
	} {
		if need.has == 0 {
			i.Missing = "the driver has no " + need.what + ", which the kernels need"
		}
	}
	if _, _, ok := l.family(device); !ok {
		i.Missing = "the device has no queue for computing"
	}
	i.Missing = cmp.Or(i.Missing, lacking(&p.limits))
	i.Threads = int(min(binary.LittleEndian.Uint32(p.limits[workgroup:]), binary.LittleEndian.Uint32(p.limits[workgroup+4:])))
	_, i.Memory = l.memory(device)
	return i
}

// workgroup is where VkPhysicalDeviceLimits has the threads of a workgroup, and behind them those of its first dimension.
const workgroup = 232

// lacking is what limits of a device are too small for, or "".
func lacking(limits *[504]byte) string {
	for _, need := range []struct {
		at    int // in VkPhysicalDeviceLimits
		least uint32
		what  string
	}{
		{216, 32 << 10, "bytes of shared memory"},
		{workgroup, 256, "threads in a workgroup"},
		{workgroup + 4, 256, "threads in the first dimension of a workgroup"},
	} {
		if has := binary.LittleEndian.Uint32(limits[need.at:]); has < need.least {
			return fmt.Sprintf("the device has %d %s, the kernels need %d", has, need.what, need.least)
		}
	}
	return ""
}

// period is how many nanoseconds a tick of a device's clock has.
func (l *library) period(device uintptr) float32 {
	const at = 424 // of VkPhysicalDeviceLimits
	p := &physicalDeviceProperties2{sType: 1000059001}
	l.run(getProperties, device, uintptr(unsafe.Pointer(p)))
	return math.Float32frombits(binary.LittleEndian.Uint32(p.limits[at:]))
}

// matrixExtension is that of cooperative matrices.
const matrixExtension = "VK_KHR_cooperative_matrix"

// subgroup is the threads of a subgroup in kernels with cooperative matrices.
const subgroup = 32

// matrix is Info.Matrix of a device. Kernels with cooperative matrices have at most 48 KB of shared memory.
func (l *library) matrix(device uintptr, f *features) int {
	sizes := &physicalDeviceSubgroupSizeControlProperties{sType: 1000225000}
	p := &physicalDeviceProperties2{sType: 1000059001, next: unsafe.Pointer(sizes)}
	l.run(getProperties, device, uintptr(unsafe.Pointer(p)))
	runtime.KeepAlive(p)
	const sharedMemory = 216 // of VkPhysicalDeviceLimits
	if l.matrices == 0 || f.coop.matrix == 0 || f.v12.of[memoryModel] == 0 || f.v12.of[shaderInt8] == 0 || f.v13.of[subgroupSize] == 0 || f.v13.of[fullSubgroups] == 0 ||
		sizes.least > subgroup || sizes.most < subgroup || sizes.stages&computeStage == 0 || binary.LittleEndian.Uint32(p.limits[sharedMemory:]) < 48<<10 {
		return 0
	}
	count := new(uint32)
	l.address(l.matrices, device, uintptr(unsafe.Pointer(count)), 0)
	if *count == 0 {
		return 0
	}
	list := make([]cooperativeMatrixProperties, *count)
	for i := range list {
		list[i].sType = 1000506001
	}
	l.address(l.matrices, device, uintptr(unsafe.Pointer(count)), uintptr(unsafe.Pointer(&list[0])))
	most := uint32(0)
	for _, m := range list {
		const int8_, int32_, ofSubgroup = 3, 5, 3
		if m.m == 16 && m.n == 16 && (m.k == 16 || m.k == 32) && m.a == int8_ && m.b == int8_ && m.c == int32_ && m.result == int32_ && m.saturates == 0 && m.scope == ofSubgroup {
			most = max(most, m.k)
		}
	}
	return int(most)
}

// text is a name that C has written.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

// memory is the free and all memory of the heap that a device computes in: the largest of its own.
func (l *library) memory(device uintptr) (free, total int64) {
	budget := &physicalDeviceMemoryBudgetProperties{sType: 1000237000}
	m := &physicalDeviceMemoryProperties2{sType: 1000059006, next: unsafe.Pointer(budget)}
	l.run(getMemoryProperties, device, uintptr(unsafe.Pointer(m)))
	runtime.KeepAlive(m)
	for i := range m.heaps {
		const local = 1
		if h := m.heap[i]; h.flags&local != 0 && int64(h.size) > total {
			total, free = int64(h.size), int64(h.size)
			if budget.budget[i] > 0 {
				free = max(0, int64(budget.budget[i])-int64(budget.usage[i]))
			}
		}
	}
	return free, total
}

// family is the first family of queues that compute, and the bits of its timestamps, 0 if it has none.
func (l *library) family(device uintptr) (family, timestamps uint32, ok bool) {
	count := new(uint32)
	l.run(getQueueFamilies, device, uintptr(unsafe.Pointer(count)), 0)
	if *count == 0 {
		return 0, 0, false
	}
	list := make([]queueFamilyProperties, *count)
	l.run(getQueueFamilies, device, uintptr(unsafe.Pointer(count)), uintptr(unsafe.Pointer(&list[0])))
	for i, f := range list {
		const compute = 2
		if f.flags&compute != 0 {
			return uint32(i), f.timestampBits, true
		}
	}
	return 0, 0, false
}

// extension reports whether a device has an extension.
func (l *library) extension(device uintptr, want string) bool {
	count := new(uint32)
	if l.do(enumerateExtensions, device, 0, uintptr(unsafe.Pointer(count)), 0) != nil || *count == 0 {
		return false
	}
	list := make([]extensionProperties, *count)
	if l.do(enumerateExtensions, device, 0, uintptr(unsafe.Pointer(count)), uintptr(unsafe.Pointer(&list[0]))) != nil {
		return false
	}
	for i := range list {
		if text(list[i].name[:]) == want {
			return true
		}
	}
	return false
}

// Open implements Driver.
func (l *library) Open(i int) (Device, error) {
	physical := l.devices[i]
	family, timestamps, ok := l.family(physical)
	if !ok {
		return nil, errors.New("the device has no queue for computing")
	}
	f := l.features(physical)
	f.core.of[robustBufferAccess] = 0 // which would check every address
	priority := float32(1)
	queue := &deviceQueueCreateInfo{sType: 2, family: family, count: 1, priorities: &priority}
	info := &deviceCreateInfo{sType: 3, next: unsafe.Pointer(&f.core), queues: 1, queue: queue}
	names := new([2]*byte)
	for _, extension := range []string{"VK_EXT_memory_budget", matrixExtension} {
		if l.extension(physical, extension) {
			names[info.extensions] = name(extension)
			info.extensions, info.names = info.extensions+1, unsafe.Pointer(names)
		}
	}
	h := new(uintptr)
	if err := l.do(createDevice, physical, uintptr(unsafe.Pointer(info)), 0, uintptr(unsafe.Pointer(h))); err != nil {
		return nil, err
	}
	d := &device{l: l, physical: physical, handle: *h, timestamps: timestamps}
	for f := destroyDevice; f < functionCount; f++ { // those of the driver, without the loader before them
		d.table[f] = cmp.Or(l.address(l.table[getDeviceProcAddr], d.handle, uintptr(unsafe.Pointer(name(functions[f])))), l.table[f])
	}
	if err := d.prepare(family); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// longest is how long a submission may take, in nanoseconds: a device that takes longer is lost.
const longest = 300e9

// noLimit is all of a memory.
const noLimit = math.MaxUint64
