// Rounding of activations to 8 bits for products with superblocks.
#pragma once
#include "bits.cuh"

// quantizeSuper is quantizeGroup for a superblock of 256 columns: number 4j+i of lane l is column 128j+4l+i.
// Codes are in the lane order of mma: of every 64 columns first those of lane 0 of four, which are columns 0 to 3 of
// each 16. The scale is followed, tailRows further each, by the sums of the codes of every 32 columns, in two
// digits: bytes of -64 to 63, and the number of 128s to add.
__device__ __forceinline__ void quantizeSuper(const float v[8], signed char *codes, float2 *tail, int tailRows) {
  const int lane = threadIdx.x & 31;
  uint32_t top = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) top = max(top, __float_as_uint(v[i]) & 0x7fffffffu);
  top = __reduce_max_sync(~0u, top);
  const float most = __uint_as_float(top);
  float scale = quot(most, 127.0f), inverse = quot(127.0f, most);
  const bool finite = top < 0x7f800000u, none = top == 0 || !finite || __float_as_uint(inverse) == 0x7f800000u;
  codes += 64 * (lane >> 4) + 16 * (lane & 3) + 8 * (lane >> 3 & 1) + 4 * (lane >> 2 & 1);
#pragma unroll
  for (int j = 0; j < 2; j++) {
    uint32_t four = 0;
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int n = none ? 0 : __float_as_int(add(mul(v[4 * j + i], inverse), 12582912.0f)) - 0x4b400000;
      n = min(max(n, -127), 127);
      four |= (n & 0xff) << 8 * i, sum += n;
    }
    *(uint32_t *)(codes + 128 * j) = four;
#pragma unroll
    for (int d = 4; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if ((lane & 7) == 0) {
      const int times = (sum + 64) >> 7;
      ((signed char *)(tail + tailRows))[4 * j + lane / 8] = sum - 128 * times;
      ((signed char *)(tail + 2 * tailRows))[4 * j + lane / 8] = times;
    }
  }
  if (none) scale = finite ? 0.0f : __uint_as_float(0x7fc00000u);
  if (lane == 0) *tail = make_float2(scale, 0.0f);
}
