// One row in shared memory for products with superblocks: every block of a product norms it, where that is asked for, and
// rounds it, while its weights are on their way. The bits are those of rms_norm and quantizeSuper.
#pragma once
#include "bits.cuh"
#include "weight.cuh"

// SuperRow is the row, and where the first block leaves what others need of it.
struct SuperRow {
  const float* x;
  const float* gain;
  float* dst;          // the row with its norm
  signed char* codes;  // the row as integers, and its tails
  float2* tails;
  int cols, tailRows;
  float eps;
  int unused;

  static constexpr int PIECES = 3;  // superblocks that a warp of eight has at most

  struct Space {
    float4* row;
    signed char* codes;
    word* digits;  // of each superblock the low ones of eight groups, and the high ones
    float* scales;

    __device__ __forceinline__ void lay(byte* at, int cols) {
      row = (float4*)at, codes = (signed char*)(at + 4 * cols);
      digits = (word*)(codes + cols), scales = (float*)((byte*)digits + cols / 16);
    }
  };

  // round leaves the row as integers in shared memory, for all threads. upper is wideSum's.
  __device__ __forceinline__ void round(const Space& space, float upper[33]) const {
    const int lane = threadIdx.x & 31, warp = __shfl_sync(~0u, threadIdx.x / 32, 0), blocks = cols / 256;
    // Number 4j+i of a lane is column 128j+4*lane+i of a superblock.
    float4 gains[PIECES][2];
#pragma unroll
    for (int k = 0; k < PIECES; k++)
#pragma unroll
      for (int j = 0; j < 2; j++)
        if (warp + 8 * k < blocks) gains[k][j] = ((const float4*)gain)[(warp + 8 * k) * 64 + 32 * j + lane];
    await();
    float4 part[2 * PIECES];
#pragma unroll
    for (int i = 0; i < 2 * PIECES; i++)
      if (threadIdx.x + 256 * i < cols / 4) part[i] = ((const float4*)x)[threadIdx.x + 256 * i];
#pragma unroll
    for (int i = 0; i < 2 * PIECES; i++)
      if (threadIdx.x + 256 * i < cols / 4) space.row[threadIdx.x + 256 * i] = part[i];
    __syncthreads();
    float s = 0.0f;
    if (warp < 2) {
#pragma unroll 16
      for (int i = threadIdx.x; i < cols; i += 64) s = fused(((const float*)space.row)[i], ((const float*)space.row)[i], s);
    }
    const float by = rsqrt32(add(quot(wideSum(s, upper), (float)cols), eps));
    const bool leaves = blockIdx.x == 0;
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
      const int g = warp + 8 * k;
      if (g >= blocks) break;
      float v[8];
      word top = 0;
#pragma unroll
      for (int j = 0; j < 2; j++) {
        float4 y = space.row[g * 64 + 32 * j + lane];
        const float4& f = gains[k][j];
        y.x = mul(mul(y.x, by), f.x), y.y = mul(mul(y.y, by), f.y), y.z = mul(mul(y.z, by), f.z), y.w = mul(mul(y.w, by), f.w);
        if (leaves) ((float4*)dst)[g * 64 + 32 * j + lane] = y;
        v[4 * j] = y.x, v[4 * j + 1] = y.y, v[4 * j + 2] = y.z, v[4 * j + 3] = y.w;
      }
#pragma unroll
      for (int i = 0; i < 8; i++) top = max(top, __float_as_uint(v[i]) & 0x7fffffffu);
      top = __reduce_max_sync(~0u, top);
      const float most = __uint_as_float(top), inverse = quot(127.0f, most);
      const bool finite = top < 0x7f800000u, none = top == 0 || !finite || __float_as_uint(inverse) == 0x7f800000u;
      const float scale = none ? finite ? 0.0f : __uint_as_float(0x7fc00000u) : quot(most, 127.0f);
      const int at = g * 256 + 64 * (lane >> 4) + 16 * (lane & 3) + 8 * (lane >> 3 & 1) + 4 * (lane >> 2 & 1);
#pragma unroll
      for (int j = 0; j < 2; j++) {
        word four = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) four |= (__float_as_uint(add(mul(v[4 * j + i], inverse), 12582912.0f)) & 0xff) << 8 * i;  // the last byte is the code
        if (none) four = 0;
        int sum = __dp4a((int)four, 0x01010101, 0);
#pragma unroll
        for (int d = 4; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
        const int times = (sum + 64) >> 7, low = sum - 128 * times;
        *(word*)(space.codes + at + 128 * j) = four;
        if (leaves) *(word*)(codes + at + 128 * j) = four;
        if ((lane & 7) == 0) {
          signed char* digits = (signed char*)(space.digits + 4 * g) + 4 * j + lane / 8;
          digits[0] = low, digits[8] = times;
          if (leaves) {
            float2* tail = tails + 3ll * g * tailRows;
            ((signed char*)(tail + tailRows))[4 * j + lane / 8] = low, ((signed char*)(tail + 2 * tailRows))[4 * j + lane / 8] = times;
          }
        }
      }
      if (lane == 0) {
        space.scales[g] = scale;
        if (leaves) tails[3ll * g * tailRows] = make_float2(scale, 0.0f);
      }
    }
    __syncthreads();
  }
};
