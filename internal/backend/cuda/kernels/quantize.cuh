// Rounding of activations to 8 bits, a warp for a group of at most 128 columns: the arithmetic of
// quantizeGroup in package kernel of the CPU backend.
#pragma once
#include "bits.cuh"

// quantizeGroup rounds what the lanes of a warp have, number i of lane l being column l+32i of the
// group, and writes codes and, by the first lane, the scale and the scaled sum of the codes.
__device__ __forceinline__ void quantizeGroup(const float v[4], int group, signed char *codes, float2 *tail) {
  const int lane = threadIdx.x & 31;
  uint32_t top = 0;
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (lane + 32 * i < group) top = max(top, __float_as_uint(v[i]) & 0x7fffffffu);
  top = __reduce_max_sync(~0u, top);
  // Magnitudes order like their bits. What is not finite shows in the product.
  const float most = __uint_as_float(top);
  float scale = quot(most, 127.0f), inverse = quot(127.0f, most);
  const bool finite = top < 0x7f800000u, none = top == 0 || !finite || __float_as_uint(inverse) == 0x7f800000u;
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (lane + 32 * i < group) {
      int n = none ? 0 : __float_as_int(add(mul(v[i], inverse), 12582912.0f)) - 0x4b400000;
      n = min(max(n, -127), 127);
      codes[lane + 32 * i] = (signed char)n;
      sum += n;
    }
  sum = __reduce_add_sync(~0u, sum);
  if (none) scale = finite ? 0.0f : __uint_as_float(0x7fc00000u);
  if (lane == 0) *tail = make_float2(scale, mul((float)sum, scale));
}

// Where the codes of rows go: see quantized in matmul.go. Without codes there are none to write, and
// a group is how many columns a warp has at a time.
struct Codes {
  signed char *codes;
  float2 *tails;
  int stride, group, tailRows, unused;
};

// quantizeGroups rounds what a warp has, number i of lane l being column first+l+32i of a row, in whole
// groups of 32, 64 or 128, as many as there are in `columns` of them.
__device__ __forceinline__ void quantizeGroups(const float v[4], int columns, const Codes &c, size_t row, int first) {
#pragma unroll
  for (int k = 0; k < 4; k++) {
    if (32 * k >= columns || 32 * k % c.group != 0) continue;
    float part[4];
#pragma unroll
    for (int i = 0; i < 4; i++) part[i] = k + i < 4 ? v[k + i < 4 ? k + i : 3] : 0.0f;
    quantizeGroup(part, c.group, c.codes + row * c.stride + first + 32 * k, c.tails + (size_t)((first + 32 * k) / c.group) * c.tailRows + row);
  }
}
