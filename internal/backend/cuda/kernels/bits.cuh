// The arithmetic of package exactmath: the same bits as its functions of float32, which have the names and
// the reasons. Numbers are computed only by the functions below, so that no
// compiler fuses or reorders: every one of them rounds to nearest.
#pragma once
#include <cstdint>

__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float sub(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float quot(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }  // FMA32
__device__ __forceinline__ float rsqrt32(float x) { return quot(1.0f, __fsqrt_rn(x)); }

// atMost keeps NaN, atLeast0 makes it zero: another term then has the NaN.
__device__ __forceinline__ float atMost(float x, float limit) { return x > limit ? limit : x; }
__device__ __forceinline__ float atLeast0(float x) { return x > 0.0f ? x : 0.0f; }

// pow2 is 2^k for -126 <= k <= 127.
__device__ __forceinline__ float pow2(int k) { return __int_as_float((k + 127) << 23); }

__device__ __forceinline__ float exp32(float x) {
  if (x != x) return x;
  if (x < -87.33654f) return 0.0f;
  if (x > 88.72283f) return __int_as_float(0x7f800000);
  const float round = 12582912.0f;
  float n = sub(fused(x, 1.44269504f, round), round);
  float hi = fused(n, -0.693145751953125f, x), lo = mul(n, -1.42860682030941723212e-6f), r = add(hi, lo);
  float q = fused(0.000198909882f, r, 0.00139336474f);
  q = fused(q, r, 0.00833331048f);
  q = fused(q, r, 0.0416664667f);
  q = fused(q, r, 0.166666672f);
  q = fused(q, r, 0.5f);
  float one = add(1.0f, hi), lost = sub(hi, sub(one, 1.0f));
  float p = add(one, add(lost, fused(mul(r, r), q, lo)));
  int k = (int)n, h = k >> 1;
  return mul(mul(p, pow2(h)), pow2(k - h));
}

__device__ __forceinline__ float sigmoid32(float x) {
  float e = exp32(-fabsf(x)), y = fused(-e, quot(e, add(1.0f, e)), e);
  return x < 0.0f ? y : sub(1.0f, y);
}

__device__ __forceinline__ float silu32(float x) {
  float e = exp32(-fabsf(x)), p = mul(x, e);
  float y = add(p, fused(-p, quot(e, add(1.0f, e)), fused(x, e, -p)));
  return x < 0.0f ? y : sub(x, y);
}

__device__ __forceinline__ float softplus32(float x) {
  float y = exp32(-fabsf(x)), s = quot(y, add(2.0f, y)), z = mul(s, s);
  float h = fused((float)(2.0 / 17), z, (float)(2.0 / 15));
  h = fused(h, z, (float)(2.0 / 13));
  h = fused(h, z, (float)(2.0 / 11));
  h = fused(h, z, (float)(2.0 / 9));
  h = fused(h, z, (float)(2.0 / 7));
  h = fused(h, z, (float)(2.0 / 5));
  h = fused(h, z, (float)(2.0 / 3));
  return add(atLeast0(x), fused(-s, fused(-z, h, y), y));
}

__device__ __forceinline__ float gelu32(float x) {
  float a = atMost(fabsf(x), 14.0f), z = mul(a, a);
  float e = exp32(mul(-0.5f, z));
  e = fused(e, mul(-0.5f, fused(a, a, -z)), e);
  float t = quot(1.0f, fused(a, 0.25f, 1.0f));
  float p = fused(0.0153836033f, t, -0.0563454643f);
  p = fused(p, t, 0.0366152550f);
  p = fused(p, t, 0.0483180834f);
  p = fused(p, t, -0.00367795936f);
  p = fused(p, t, 0.0953755683f);
  p = fused(p, t, 0.0690116361f);
  p = fused(p, t, 0.0961508647f);
  p = fused(p, t, 0.0994166231f);
  p = fused(p, t, 0.0997517922f);
  return sub(atLeast0(x), mul(mul(mul(a, t), p), e));
}

__device__ __forceinline__ float geluTanh32(float x) {
  const float c0 = 1.59576917f, c0Lo = -4.53406804e-8f, c1 = 0.0713548139f, c1Lo = 2.39883240e-9f;
  float a = atMost(fabsf(x), 16.0f), z = mul(a, a), m = mul(c1, z);
  float low = fused(c1Lo, z, fused(c1, fused(a, a, -z), fused(c1, z, -m)));
  float s = add(c0, m), t = sub(s, c0);
  low = add(low, add(add(sub(c0, sub(s, t)), sub(m, t)), c0Lo));
  float v = mul(a, s);
  low = fused(a, low, fused(a, s, -v));
  float e = exp32(-v);
  e = fused(e, -low, e);
  float p = mul(a, e), y = add(p, fused(-p, quot(e, add(1.0f, e)), fused(a, e, -p)));
  return sub(atLeast0(x), y);
}

// sincos32 is in float64, as exactmath has it.
__device__ __forceinline__ void sincos32(float x, float *sin, float *cos) {
  double v = x, n = floor(__dadd_rn(__dmul_rn(v, 0.63661977236758134308), 0.5));
  double r = __dsub_rn(v, __dmul_rn(n, 1.57079632673412561417e+00));
  r = __dsub_rn(r, __dmul_rn(n, 6.07710050630396597660e-11));
  r = __dsub_rn(r, __dmul_rn(n, 2.02226624879595063154e-21));
  double z = __dmul_rn(r, r), s = 1.0, c = 1.0;
#pragma unroll 1
  for (int k = 14; k >= 2; k -= 2) {
    s = __dsub_rn(1.0, __ddiv_rn(__dmul_rn(z, s), (double)(k * (k + 1))));
    c = __dsub_rn(1.0, __ddiv_rn(__dmul_rn(z, c), (double)(k * (k - 1))));
  }
  s = __dmul_rn(r, s);
  int quarter = (int)((long long)n & 3);
  double first = quarter & 1 ? c : s, second = quarter & 1 ? -s : c;
  *sin = __double2float_rn(quarter & 2 ? -first : first);
  *cos = __double2float_rn(quarter & 2 ? -second : second);
}

// sum16 adds the partial sums of 16 neighboring threads of a warp in the tree of SumLanes32; all of
// them get the sum. All 32 take part.
__device__ __forceinline__ float sum16(float a) {
#pragma unroll
  for (int w = 8; w > 0; w >>= 1) a = add(a, __shfl_xor_sync(0xffffffffu, a, w));
  return a;
}

// wideSum adds the numbers of 64 threads in the tree of exactmath's wide lanes, halves onto halves; the
// first of the block's threads are the lanes. Every thread of the block gets the sum. upper is shared.
__device__ __forceinline__ float wideSum(float a, float upper[33]) {
  int i = threadIdx.x;
  if (i >= 32 && i < 64) upper[i - 32] = a;
  __syncthreads();
  if (i < 32) {
    a = add(a, upper[i]);
    a = add(a, __shfl_xor_sync(0xffffffffu, a, 16));
    a = sum16(a);
    if (i == 0) upper[32] = a;
  }
  __syncthreads();
  return upper[32];
}

// A kernel may begin before earlier ones have ended: it first lets the next one do so, and calls
// await before it touches memory that a kernel writes. It may load weights before.
__device__ __forceinline__ void release() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ void await() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// placeOf is where a column of a row in groups of 16 is: the words of four groups take turns, so that the four lanes which
// multiply a row with tensor cores have 16 bytes each.
__device__ __forceinline__ int placeOf(int column) { return (column & ~63) + (column & 12) * 4 + (column >> 2 & 12) + (column & 3); }
