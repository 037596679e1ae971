// Rounding of activations to 8 bits, a warp for a group of at most 128 columns: the arithmetic of
// quantizeGroup in package kernel of the CPU backend.
#pragma once
#include "bits.cuh"
#include "quantizesuper.cuh"

// quantizeGroup rounds the numbers of the lanes of a warp, number i of lane l being column l+32i of the
// group, and writes codes, from column `first` of a row on, and, by the first lane, the scale and the sum of the codes,
// scaled unless whole.
__device__ __forceinline__ void quantizeGroup(const float v[4], int group, signed char *row, int first, float2 *tail, bool whole) {
  const int lane = threadIdx.x & 31;
  uint32_t top = 0;
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (lane + 32 * i < group) top = max(top, __float_as_uint(v[i]) & 0x7fffffffu);
  top = __reduce_max_sync(~0u, top);
  // Magnitudes order like their bits. NaN and infinities show in the product.
  const float most = __uint_as_float(top);
  float scale = quot(most, 127.0f), inverse = quot(127.0f, most);
  const bool finite = top < 0x7f800000u, none = top == 0 || !finite || __float_as_uint(inverse) == 0x7f800000u;
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (lane + 32 * i < group) {
      int n = none ? 0 : __float_as_int(add(mul(v[i], inverse), 12582912.0f)) - 0x4b400000;
      n = min(max(n, -127), 127);
      row[group == 16 ? placeOf(first + lane) : first + lane + 32 * i] = (signed char)n;
      sum += n;
    }
  sum = __reduce_add_sync(~0u, sum);
  if (none) scale = finite ? 0.0f : __uint_as_float(0x7fc00000u);
  if (lane == 0) *tail = make_float2(scale, whole ? (float)sum : mul((float)sum, scale));
}

// Destination of the codes of rows: see quantized in matmul.go. Without codes there are none to write, and
// group is the number of columns of a warp at a time.
struct Codes {  // shared with Go
  signed char *codes;
  float2 *tails;
  int stride, group, tailRows, whole;
};

// quantizeGroups rounds the numbers of a warp, number i of lane l being column first+l+32i of a row, in whole
// groups of 32, 64 or 128, as many as there are in `columns` of them.
__device__ __forceinline__ void quantizeGroups(const float v[4], int columns, const Codes &c, size_t row, int first) {
#pragma unroll
  for (int k = 0; k < 4; k++) {
    if (32 * k >= columns || 32 * k % c.group != 0) continue;
    float part[4];
#pragma unroll
    for (int i = 0; i < 4; i++) part[i] = k + i < 4 ? v[k + i < 4 ? k + i : 3] : 0.0f;
    quantizeGroup(part, c.group, c.codes + row * c.stride, first + 32 * k, c.tails + (size_t)((first + 32 * k) / c.group) * c.tailRows + row, c.whole);
  }
}

// quantizeRow is quantizeGroups in fewer instructions, for code that is executed once: groups are rounded
// side by side, and lane k does the divisions of group k.
__device__ __forceinline__ void quantizeRow(const float v[4], int columns, const Codes &c, size_t row, int first) {
  const int lane = threadIdx.x & 31, wide = c.group / 32;
  uint32_t top[4];
  int code[4], sum[4];
#pragma unroll
  for (int k = 0; k < 4; k++) top[k] = __reduce_max_sync(~0u, 32 * k < columns ? __float_as_uint(v[k]) & 0x7fffffffu : 0u);
  if (wide > 1) top[0] = top[1] = max(top[0], top[1]), top[2] = top[3] = max(top[2], top[3]);
  if (wide > 2) top[0] = top[1] = top[2] = top[3] = max(top[0], top[2]);
  const uint32_t own = lane == 0 ? top[0] : lane == 1 ? top[1] : lane == 2 ? top[2] : top[3];
  const float most = __uint_as_float(own);
  float scale = quot(most, 127.0f), inverse = quot(127.0f, most);
  const bool finite = own < 0x7f800000u, none = own == 0 || !finite || __float_as_uint(inverse) == 0x7f800000u;
  if (none) inverse = 0.0f, scale = finite ? 0.0f : __uint_as_float(0x7fc00000u);
  const uint32_t zero = __ballot_sync(~0u, none);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const float by = __shfl_sync(~0u, inverse, k);
    const int n = zero >> k & 1 ? 0 : __float_as_int(add(mul(v[k], by), 12582912.0f)) - 0x4b400000;
    code[k] = 32 * k < columns ? min(max(n, -127), 127) : 0;
    sum[k] = __reduce_add_sync(~0u, code[k]);
  }
  if (wide > 1) sum[0] += sum[1], sum[2] += sum[3];
  if (wide > 2) sum[0] += sum[2];
  const int total = lane == 0 ? sum[0] : lane == 1 ? sum[1] : lane == 2 ? sum[2] : sum[3];
#pragma unroll
  for (int k = 0; k < 4; k++)
    if (32 * k < columns) c.codes[row * c.stride + first + lane + 32 * k] = (signed char)code[k];
  if (32 * lane < columns && lane % wide == 0) c.tails[(size_t)((first + 32 * lane) / c.group) * c.tailRows + row] = make_float2(scale, c.whole ? (float)total : mul((float)total, scale));
}

// quantizeSixteens is quantizeRow for groups of 16: half of the lanes have one, and lane k of a half does the divisions of
// its group k.
__device__ __forceinline__ void quantizeSixteens(const float v[4], int columns, const Codes &c, size_t row, int first) {
  const int lane = threadIdx.x & 31, half = lane & 16;
  uint32_t top[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    top[k] = 32 * k + half < columns ? __float_as_uint(v[k]) & 0x7fffffffu : 0u;
#pragma unroll
    for (int d = 8; d > 0; d /= 2) top[k] = max(top[k], __shfl_xor_sync(~0u, top[k], d));
  }
  const int mine = lane & 3;
  const uint32_t own = mine == 0 ? top[0] : mine == 1 ? top[1] : mine == 2 ? top[2] : top[3];
  const float most = __uint_as_float(own);
  float scale = quot(most, 127.0f), inverse = quot(127.0f, most);
  const bool finite = own < 0x7f800000u, none = own == 0 || !finite || __float_as_uint(inverse) == 0x7f800000u;
  if (none) inverse = 0.0f, scale = finite ? 0.0f : __uint_as_float(0x7fc00000u);
  const uint32_t zero = __ballot_sync(~0u, none);
  int sums[2] = {0, 0};  // of two groups each
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const float by = __shfl_sync(~0u, inverse, half + k);
    int n = zero >> (half + k) & 1 ? 0 : __float_as_int(add(mul(v[k], by), 12582912.0f)) - 0x4b400000;
    n = min(max(n, -127), 127);
    if (32 * k + half < columns) c.codes[row * c.stride + placeOf(first + lane + 32 * k)] = (signed char)n;
    sums[k / 2] += n << 16 * (k & 1);
  }
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int d = 8; d > 0; d /= 2) sums[i] += __shfl_xor_sync(~0u, sums[i], d);
  const int both = mine < 2 ? sums[0] : sums[1], low = (short)both, total = mine & 1 ? (both - low) >> 16 : low;
  if ((lane & 15) < 4 && 32 * mine + half < columns)
    c.tails[(size_t)((first + 32 * mine + half) / 16) * c.tailRows + row] = make_float2(scale, c.whole ? (float)total : mul((float)total, scale));
}
