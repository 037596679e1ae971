// Copies from global to shared memory that go on while a thread computes.
#pragma once
#include <cstddef>

__device__ __forceinline__ void copy16(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}

__device__ __forceinline__ void copy4(void *to, const void *from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}

// commit makes a group of the thread's copies since the last one. arrive waits until all but the last
// N groups of this thread are complete; those of other threads also need a barrier.
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void arrive() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
