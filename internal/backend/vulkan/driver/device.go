//go:build vulkan && (linux || windows)

package driver

import (
	"errors"
	"slices"
	"time"
	"unsafe"
)

// device is an open device.
type device struct {
	table
	l                *library
	physical, handle uintptr
	queue            uintptr
	pool             handle
	layout           handle
	semaphore        handle
	submitted, ended uint64
	timestamps       uint32 // bits of those of the queue; 0: it has none

	local, cached memoryChoice
	all           []allocation // by address
	lost          error        // a device that has failed fails for ever
	kernels       map[*kernel]struct{}
	barrier       *memoryBarrier
}

// memoryChoice is the types of memory for a purpose, best first.
type memoryChoice []uint32

// allocation is memory and the buffer that covers it.
type allocation struct {
	at     Ptr
	bytes  int64
	buffer handle
	memory handle
	host   []byte // of Pin
}

// Stages and accesses of barriers.
const (
	stageCompute, stageTransfer             = uint32(0x800), uint32(0x1000)
	accessRead, accessWrite                 = 0x20, 0x40
	accessTransferRead, accessTransferWrite = 0x800, 0x1000
	computeStage                            = 0x20 // of a pipeline
)

// prepare makes what every device has.
func (d *device) prepare(family uint32) error {
	d.kernels = map[*kernel]struct{}{}
	d.barrier = &memoryBarrier{sType: 46}
	queue, pool, layout, semaphore := new(uintptr), new(handle), new(handle), new(handle)
	d.run(getQueue, d.handle, uintptr(family), 0, uintptr(unsafe.Pointer(queue)))
	d.queue = *queue
	const resetBuffers = 2
	if err := d.do(createCommandPool, d.handle, uintptr(unsafe.Pointer(&commandPoolCreateInfo{sType: 39, flags: resetBuffers, family: family})), 0, uintptr(unsafe.Pointer(pool))); err != nil {
		return err
	}
	d.pool = *pool
	push := &pushConstantRange{computeStage, 0, PushBytes}
	if err := d.do(createPipelineLayout, d.handle, uintptr(unsafe.Pointer(&pipelineLayoutCreateInfo{sType: 30, pushes: 1, push: push})), 0, uintptr(unsafe.Pointer(layout))); err != nil {
		return err
	}
	d.layout = *layout
	timeline := &semaphoreTypeInfo{sType: 1000207002, typ: 1}
	if err := d.do(createSemaphore, d.handle, uintptr(unsafe.Pointer(&semaphoreCreateInfo{sType: 9, next: unsafe.Pointer(timeline)})), 0, uintptr(unsafe.Pointer(semaphore))); err != nil {
		return err
	}
	d.semaphore = *semaphore
	d.chooseMemory()
	return nil
}

// chooseMemory orders the types of memory: local is for the device, cached for copies to and from the host.
func (d *device) chooseMemory() {
	m := &physicalDeviceMemoryProperties2{sType: 1000059006}
	d.l.run(getMemoryProperties, d.physical, uintptr(unsafe.Pointer(m)))
	const local, visible, coherent, cached = 1, 2, 4, 8
	_, total := d.l.memory(d.physical)
	for i := range m.types {
		t := m.typ[i]
		if t.flags&local != 0 && int64(m.heap[t.heap].size) == total && t.flags&0xf0 == 0 { // no protected or special memory
			d.local = append(d.local, i)
		}
		if t.flags&(visible|coherent) == visible|coherent && t.flags&0xf0 == 0 {
			d.cached = append(d.cached, i)
		}
	}
	slices.SortStableFunc(d.cached, func(a, b uint32) int {
		return int(m.typ[b].flags&cached) - int(m.typ[a].flags&cached) + int(m.typ[a].flags&local) - int(m.typ[b].flags&local)
	})
}

// do calls a function of the device, unless that is lost.
//
//go:uintptrescapes
func (d *device) do(f function, args ...uintptr) error {
	if d.lost != nil {
		return d.lost
	}
	err := d.call(f, args)
	if e, ok := err.(*Error); ok && e.DeviceLost() { //nolint:errorlint // it is what call returns
		d.lost = err
	}
	return err
}

// Memory implements Device, as all that follows.
func (d *device) Memory() (free, total int64, err error) {
	free, total = d.l.memory(d.physical)
	return free, total, nil
}

func (d *device) Alloc(bytes int64) (Ptr, error) {
	a, err := d.allocate(bytes, d.local)
	return a.at, err
}

// allocate returns memory of the first type of a choice that a buffer can have.
func (d *device) allocate(bytes int64, choice memoryChoice) (a allocation, err error) {
	const transfers, storage, address = 3, 0x20, 0x20000
	a.bytes = (max(bytes, 1) + 255) &^ 255
	buffer, memory, need := new(handle), new(handle), new(memoryRequirements)
	if err := d.do(createBuffer, d.handle, uintptr(unsafe.Pointer(&bufferCreateInfo{sType: 12, size: uint64(a.bytes), usage: transfers | storage | address})), 0, uintptr(unsafe.Pointer(buffer))); err != nil {
		return allocation{}, err
	}
	a.buffer = *buffer
	d.run(getBufferRequirements, d.handle, uintptr(a.buffer), uintptr(unsafe.Pointer(need)))
	err = &Error{Call: functions[allocateMemory], Code: FeatureMissing}
	for _, t := range choice {
		if need.types>>t&1 == 0 {
			continue
		}
		const addresses = 2
		flags := &memoryAllocateFlagsInfo{sType: 1000060000, flags: addresses}
		err = d.do(allocateMemory, d.handle, uintptr(unsafe.Pointer(&memoryAllocateInfo{sType: 5, next: unsafe.Pointer(flags), size: need.size, typ: t})), 0, uintptr(unsafe.Pointer(memory)))
		break
	}
	if err != nil {
		d.run(destroyBuffer, d.handle, uintptr(a.buffer), 0)
		return allocation{}, err
	}
	a.memory = *memory
	if err := d.do(bindBufferMemory, d.handle, uintptr(a.buffer), uintptr(a.memory), 0); err != nil {
		d.release(&a)
		return allocation{}, err
	}
	a.at = Ptr(d.address(d.table[getBufferAddress], d.handle, uintptr(unsafe.Pointer(&bufferDeviceAddressInfo{sType: 1000244001, buffer: a.buffer}))))
	i, _ := d.search(a.at)
	d.all = slices.Insert(d.all, i, a)
	return a, nil
}

func (d *device) release(a *allocation) {
	d.run(destroyBuffer, d.handle, uintptr(a.buffer), 0)
	d.run(freeMemory, d.handle, uintptr(a.memory), 0)
}

// search is where an address is, or would be, among the allocations.
func (d *device) search(at Ptr) (int, bool) {
	return slices.BinarySearchFunc(d.all, at, func(a allocation, at Ptr) int {
		switch {
		case at < a.at:
			return 1
		case at >= a.at+Ptr(a.bytes):
			return -1
		}
		return 0
	})
}

func (d *device) Free(at Ptr) error {
	i, ok := d.search(at)
	if !ok || d.all[i].at != at {
		return &Error{Call: functions[freeMemory], Code: Unknown}
	}
	d.release(&d.all[i])
	d.all = slices.Delete(d.all, i, i+1)
	return d.lost
}

func (d *device) Pin(bytes int64) ([]byte, Ptr, error) {
	a, err := d.allocate(bytes, d.cached)
	if err != nil {
		return nil, 0, err
	}
	at := new(*byte)
	all := uint64(noLimit)
	if err := d.do(mapMemory, d.handle, uintptr(a.memory), 0, uintptr(all), 0, uintptr(unsafe.Pointer(at))); err != nil {
		_ = d.Free(a.at)
		return nil, 0, err
	}
	return unsafe.Slice(*at, bytes), a.at, nil
}

func (d *device) Unpin(at Ptr) error { return d.Free(at) }

// kernel is a pipeline.
type kernel struct {
	d    *device
	pipe handle
}

func (k *kernel) Close() {
	if _, ok := k.d.kernels[k]; ok {
		delete(k.d.kernels, k)
		k.d.run(destroyPipeline, k.d.handle, uintptr(k.pipe), 0)
	}
}

// cooperates reports whether a module has cooperative matrices.
func cooperates(code []uint32) bool {
	const header, capability, matrices = 5, 2<<16 | 17, 6022
	for at := header; at+1 < len(code) && code[at] == capability; at += 2 {
		if code[at+1] == matrices {
			return true
		}
	}
	return false
}

func (d *device) Kernel(code, constants []uint32) (Kernel, error) {
	module, pipe := new(handle), new(handle)
	if err := d.do(createShaderModule, d.handle, uintptr(unsafe.Pointer(&shaderModuleCreateInfo{sType: 16, size: uint64(4 * len(code)), code: &code[0]})), 0, uintptr(unsafe.Pointer(module))); err != nil {
		return nil, err
	}
	info := &computePipelineCreateInfo{sType: 29, layout: d.layout, index: -1}
	info.stage = pipelineShaderStageCreateInfo{sType: 18, stage: computeStage, module: *module, name: name("main")}
	if cooperates(code) {
		const full = 2
		info.stage.flags, info.stage.next = full, unsafe.Pointer(&requiredSubgroupSizeInfo{sType: 1000225001, size: subgroup})
	}
	if len(constants) > 0 {
		entries := make([]specializationMapEntry, len(constants))
		for i := range entries {
			entries[i] = specializationMapEntry{uint32(i), uint32(4 * i), 4}
		}
		info.stage.specialization = &specializationInfo{uint32(len(entries)), &entries[0], uint64(4 * len(constants)), unsafe.Pointer(&constants[0])}
	}
	err := d.do(createComputePipelines, d.handle, 0, 1, uintptr(unsafe.Pointer(info)), 0, uintptr(unsafe.Pointer(pipe)))
	d.run(destroyShaderModule, d.handle, uintptr(*module), 0)
	if err != nil {
		return nil, err
	}
	k := &kernel{d, *pipe}
	d.kernels[k] = struct{}{}
	return k, nil
}

func (d *device) Commands() (Commands, error) {
	h := new(uintptr)
	if err := d.do(allocateCommandBuffers, d.handle, uintptr(unsafe.Pointer(&commandBufferAllocateInfo{sType: 40, pool: d.pool, count: 1})), uintptr(unsafe.Pointer(h))); err != nil {
		return nil, err
	}
	return &commands{d: d, handle: *h, push: new([PushBytes]byte), copies: new(bufferCopy)}, nil
}

// clock is a pool of queries.
type clock struct {
	d      *device
	pool   handle
	ticks  []uint64
	period float32 // nanoseconds of a tick
}

func (d *device) Clock(marks int) (Clock, error) {
	if d.timestamps == 0 {
		return nil, &Error{Call: functions[cmdWriteTimestamp], Code: FeatureMissing, Cause: errors.New("the queue of the device has no timestamps, so that its kernels cannot be timed")}
	}
	const timestamps = 2
	pool := new(handle)
	if err := d.do(createQueryPool, d.handle, uintptr(unsafe.Pointer(&queryPoolCreateInfo{sType: 11, typ: timestamps, count: uint32(marks)})), 0, uintptr(unsafe.Pointer(pool))); err != nil {
		return nil, err
	}
	return &clock{d: d, pool: *pool, ticks: make([]uint64, marks), period: d.l.period(d.physical)}, nil
}

func (c *clock) Times() ([]time.Duration, error) {
	const wide, step = 1, 8 // numbers of 64 bits
	n := len(c.ticks)
	if err := c.d.do(getQueryResults, c.d.handle, uintptr(c.pool), 0, uintptr(n), uintptr(step*n), uintptr(unsafe.Pointer(&c.ticks[0])), step, wide); err != nil {
		return nil, err
	}
	times, unused := make([]time.Duration, n), 64-c.d.timestamps
	for i, t := range c.ticks {
		times[i] = time.Duration(float64((t-c.ticks[0])<<unused>>unused) * float64(c.period))
	}
	return times, nil
}

func (c *clock) Close() {
	if c.d.handle != 0 {
		c.d.run(destroyQueryPool, c.d.handle, uintptr(c.pool), 0)
	}
}

func (d *device) Submit(c Commands) (uint64, error) {
	b := c.(*commands)
	value, command := d.submitted+1, b.handle
	timeline := &timelineSubmitInfo{sType: 1000207003, signals: 1, signal: &value}
	err := d.do(queueSubmit, d.queue, 1, uintptr(unsafe.Pointer(&submitInfo{
		sType: 4, next: unsafe.Pointer(timeline), commands: 1, command: &command, signals: 1, signal: &d.semaphore,
	})), 0)
	if err == nil {
		d.submitted = value
	}
	return value, err
}

// Wait waits for each submission by itself, so that a device that hangs is told from one that has much to do.
func (d *device) Wait(submission uint64) error {
	for d.ended < submission {
		next := d.ended + 1
		if err := d.do(waitSemaphores, d.handle, uintptr(unsafe.Pointer(&semaphoreWaitInfo{sType: 1000207004, count: 1, semaphores: &d.semaphore, values: &next})), longest); err != nil {
			return err
		}
		d.ended = next
	}
	return d.lost
}

func (d *device) Close() error {
	if d.handle == 0 {
		return nil
	}
	if errors.Is(d.lost, Timeout) {
		return d.lost // it would be waited for again
	}
	d.run(deviceWaitIdle, d.handle)
	for k := range d.kernels {
		k.Close()
	}
	for i := range d.all {
		d.release(&d.all[i])
	}
	d.all = nil
	d.run(destroyCommandPool, d.handle, uintptr(d.pool), 0)
	d.run(destroyPipelineLayout, d.handle, uintptr(d.layout), 0)
	d.run(destroySemaphore, d.handle, uintptr(d.semaphore), 0)
	d.run(destroyDevice, d.handle, 0)
	d.handle = 0
	return d.lost
}

// commands is a command buffer.
type commands struct {
	d      *device
	handle uintptr
	push   *[PushBytes]byte
	copies *bufferCopy
	bound  *kernel
	before uint32 // stages of operations that the next ones wait for
	ready  uint32 // stages that have waited since the last fence
	wrong  error  // the first mistake since Begin
}

func (c *commands) Begin() error {
	const simultaneous = 4 // it may be submitted again before it has ended
	c.bound, c.wrong, c.before, c.ready = nil, nil, stageCompute|stageTransfer, 0
	return c.d.do(beginCommandBuffer, c.handle, uintptr(unsafe.Pointer(&commandBufferBeginInfo{sType: 42, flags: simultaneous})))
}

func (c *commands) Launch(k Kernel, groups [3]int, args []byte) {
	d := c.d
	if own := k.(*kernel); own != c.bound {
		c.bound = own
		d.run(cmdBindPipeline, c.handle, 1, uintptr(own.pipe))
	}
	if n := copy(c.push[:], args); n > 0 {
		d.run(cmdPushConstants, c.handle, uintptr(d.layout), computeStage, 0, uintptr(n), uintptr(unsafe.Pointer(c.push)))
	}
	c.await(stageCompute)
	d.run(cmdDispatch, c.handle, uintptr(groups[0]), uintptr(groups[1]), uintptr(groups[2]))
}

func (c *commands) Fence() { c.ready = 0 }

// await is called before an operation of a stage. Behind a fence it waits for the stages of the operations before.
func (c *commands) await(stage uint32) {
	if c.ready&stage == 0 {
		accesses := func(stages uint32) (list uint32) {
			if stages&stageCompute != 0 {
				list = accessRead | accessWrite
			}
			if stages&stageTransfer != 0 {
				list |= accessTransferRead | accessTransferWrite
			}
			return list
		}
		c.d.barrier.from, c.d.barrier.to = accesses(c.before), accesses(stage)
		c.d.run(cmdPipelineBarrier, c.handle, uintptr(c.before), uintptr(stage), 0, 1, uintptr(unsafe.Pointer(c.d.barrier)), 0, 0, 0, 0)
		if c.ready == 0 {
			c.before = 0
		}
		c.ready, c.before = c.ready|stage, c.before|stage
	}
}

// within is the buffer that an address lies in, and the distance from its beginning.
func (c *commands) within(at Ptr, bytes int64) (handle, uint64) {
	i, ok := c.d.search(at)
	if !ok || at+Ptr(bytes) > c.d.all[i].at+Ptr(c.d.all[i].bytes) {
		c.wrong = &Error{Call: functions[cmdCopyBuffer], Code: Unknown}
		return 0, 0
	}
	return c.d.all[i].buffer, uint64(at - c.d.all[i].at)
}

func (c *commands) Copy(to, from Ptr, bytes int64) {
	target, at := c.within(to, bytes)
	source, first := c.within(from, bytes)
	if c.wrong != nil || bytes == 0 {
		return
	}
	*c.copies = bufferCopy{first, at, uint64(bytes)}
	c.await(stageTransfer)
	c.d.run(cmdCopyBuffer, c.handle, uintptr(source), uintptr(target), 1, uintptr(unsafe.Pointer(c.copies)))
}

func (c *commands) Set(to Ptr, bytes int64) {
	target, at := c.within(to, bytes)
	if c.wrong != nil || bytes == 0 {
		return
	}
	c.await(stageTransfer)
	c.d.run(cmdFillBuffer, c.handle, uintptr(target), uintptr(at), uintptr(bytes), 0)
}

func (c *commands) Mark(k Clock, mark int) {
	const bottom = 0x2000 // of the pipe
	own := k.(*clock)
	if mark == 0 {
		c.d.run(cmdResetQueryPool, c.handle, uintptr(own.pool), 0, uintptr(len(own.ticks)))
	}
	c.d.run(cmdWriteTimestamp, c.handle, bottom, uintptr(own.pool), uintptr(mark))
}

func (c *commands) End() error {
	if c.before&stageTransfer != 0 { // a copy may be to the host
		const stageHost, accessHostRead = 0x4000, 0x2000
		c.d.barrier.from, c.d.barrier.to = accessTransferWrite, accessHostRead
		c.d.run(cmdPipelineBarrier, c.handle, uintptr(stageTransfer), stageHost, 0, 1, uintptr(unsafe.Pointer(c.d.barrier)), 0, 0, 0, 0)
	}
	if err := c.d.do(endCommandBuffer, c.handle); err != nil {
		return err
	}
	return c.wrong
}

func (c *commands) Close() {
	if c.d.handle != 0 {
		c.d.run(freeCommandBuffers, c.d.handle, uintptr(c.d.pool), 1, uintptr(unsafe.Pointer(&c.handle)))
	}
}
