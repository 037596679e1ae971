// Common parts of the Gated DeltaNet kernels.
#pragma once
#include "bits.cuh"
#include "call.cuh"
#include "quantize.cuh"

// keyHead is the key head of value head h. neighbors adjacent value heads share one key head: all of its
// value heads, or 1 if they are tiled.
__device__ __forceinline__ int keyHead(int h, int neighbors, int keyHeads) { return h / neighbors % keyHeads; }

// dot16 is the product of x and y, n numbers each, in lane order: a warp computes it, and all of its
// threads get it.
__device__ __forceinline__ float dot16(const float *x, const float *y, int n) {
  float sum = 0.0f;
#pragma unroll 4
  for (int i = threadIdx.x & 15; i < n; i += 16) sum = fused(x[i], y[i], sum);
  return sum16(sum);
}

// quarters adds the four chains of a column, which neighboring threads have: (0+1)+(2+3).
__device__ __forceinline__ float quarters(float x) {
  x = add(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return add(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// Keys of a chain are contiguous, and the chains are so far apart that they are in different banks.
const int quarterStep = 36;

// A thread's part of a key or a query.
struct Quarter {
  float4 of[8];
  __device__ void load(const float *p) {
#pragma unroll
    for (int j = 0; j < 8; j++) of[j] = *(const float4 *)(p + 4 * j);
  }
};

// A thread's part of a state.
struct State {
  float4 of[8];
  // change is the delta rule's.
  __device__ __forceinline__ void change(int j, const float4 &k, float delta, float decay) {
    of[j].x = fused(k.x, delta, mul(decay, of[j].x)), of[j].y = fused(k.y, delta, mul(decay, of[j].y));
    of[j].z = fused(k.z, delta, mul(decay, of[j].z)), of[j].w = fused(k.w, delta, mul(decay, of[j].w));
  }
  // read adds the products with a key and a query to u and w.
  __device__ __forceinline__ void read(int j, const float4 &k, const float4 &q, float *u, float *w) const {
    *u = fused(k.x, of[j].x, *u), *w = fused(q.x, of[j].x, *w);
    *u = fused(k.y, of[j].y, *u), *w = fused(q.y, of[j].y, *w);
    *u = fused(k.z, of[j].z, *u), *w = fused(q.z, of[j].z, *w);
    *u = fused(k.w, of[j].w, *u), *w = fused(q.w, of[j].w, *w);
  }
};
