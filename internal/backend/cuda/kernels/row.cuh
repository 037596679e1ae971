// One row in shared memory. If it comes as floats, every block of a product normalizes it on request, and
// rounds it in groups of 64, 32 or 16, while its weights are loaded. That saves a kernel. The
// bits are those of rms_norm and quantizeGroup.
#pragma once
#include "bits.cuh"
#include "weight.cuh"

// Row is the row, and the destinations of the first block's results for other kernels.
struct Row {  // shared with Go
  const float* x;      // none: it comes as codes and tails
  const float* gain;   // of a norm; none: no norm
  float* dst;          // the normalized row; none: not written
  signed char* codes;  // the row as integers, and its tails; none: not written
  float2* tails;
  int cols, tailRows;
  float eps;
  int unused;
};

const int rowPieces = 3;  // that a warp of eight has at most: 256 columns each

// RowSpace is a row in shared memory, with zeros up to whole chunks of eight blocks of 64 columns, H groups each.
template <int H> struct RowSpace {
  float4* row;
  float2* tails;
  signed char* codes;

  __device__ __forceinline__ RowSpace() {}
  __device__ __forceinline__ RowSpace(byte* at, const Row& r)
      : row((float4*)at), tails((float2*)(at + 4 * r.cols)), codes((signed char*)(at + 4 * r.cols + 8 * H * padded(r))) {}
  // padded is how many blocks there is space for.
  static __device__ __forceinline__ int padded(const Row& r) { return (r.cols / 64 + 7) & ~7; }
};

// roundEight rounds a group that eight neighboring lanes have, eight columns each. It returns scale and
// scaled sum of the group, or the sum itself (WHOLE), and the codes of a lane. No code needs to be clamped to 127: the
// rounding errors of 127/x and of its product with x are together less than a half.
template <bool WHOLE> __device__ __forceinline__ float2 roundEight(const float (&v)[8], word (&codes)[2]) {
  word top = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) top = max(top, __float_as_uint(v[i]) & 0x7fffffffu);
#pragma unroll
  for (int d = 4; d > 0; d /= 2) top = max(top, __shfl_xor_sync(~0u, top, d));
  const float most = __uint_as_float(top), inverse = quot(127.0f, most);
  const bool finite = top < 0x7f800000u, none = top == 0 || !finite || __float_as_uint(inverse) == 0x7f800000u;
  const float scale = none ? finite ? 0.0f : __uint_as_float(0x7fc00000u) : quot(most, 127.0f);
  word n[8];
#pragma unroll
  for (int i = 0; i < 8; i++) n[i] = __float_as_uint(add(mul(v[i], inverse), 12582912.0f));  // the last byte is the code
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    codes[i] = none ? 0 : __byte_perm(__byte_perm(n[4 * i], n[4 * i + 1], 0x40), __byte_perm(n[4 * i + 2], n[4 * i + 3], 0x40), 0x5410);
    sum = __dp4a((int)codes[i], 0x01010101, sum);
  }
#pragma unroll
  for (int d = 4; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  return make_float2(scale, WHOLE ? (float)sum : mul((float)sum, scale));
}

// roundParts is roundEight for two groups of 32 or four of 16: eight lanes have four columns of each half of the block.
template <int H> __device__ __forceinline__ void roundParts(const float (&v)[8], word (&codes)[2], float2 (&tails)[H]) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    word top = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) top = max(top, __float_as_uint(v[4 * h + i]) & 0x7fffffffu);
#pragma unroll
    for (int d = 8 / H; d > 0; d /= 2) top = max(top, __shfl_xor_sync(~0u, top, d));
    const float most = __uint_as_float(top), inverse = quot(127.0f, most);
    const bool finite = top < 0x7f800000u, none = top == 0 || !finite || __float_as_uint(inverse) == 0x7f800000u;
    const float scale = none ? finite ? 0.0f : __uint_as_float(0x7fc00000u) : quot(most, 127.0f);
    word n[4];
#pragma unroll
    for (int i = 0; i < 4; i++) n[i] = __float_as_uint(add(mul(v[4 * h + i], inverse), 12582912.0f));
    codes[h] = none ? 0 : __byte_perm(__byte_perm(n[0], n[1], 0x40), __byte_perm(n[2], n[3], 0x40), 0x5410);
    int sum = __dp4a((int)codes[h], 0x01010101, 0);
#pragma unroll
    for (int d = 8 / H; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    tails[h * (H / 2)] = make_float2(scale, mul((float)sum, scale));
    if constexpr (H == 4) {  // the first four lanes have the first group of a half
      const float2 own = tails[2 * h], other = make_float2(__shfl_xor_sync(~0u, own.x, 4), __shfl_xor_sync(~0u, own.y, 4));
      const bool second = threadIdx.x & 4;
      tails[2 * h] = second ? other : own, tails[2 * h + 1] = second ? own : other;
    }
  }
}

// roundBlock rounds 64 columns that eight neighboring lanes have, as H groups.
template <int H, bool WHOLE> __device__ __forceinline__ void roundBlock(const float (&v)[8], word (&codes)[2], float2 (&tails)[H]) {
  if constexpr (H > 1)
    roundParts<H>(v, codes, tails);
  else
    tails[0] = roundEight<WHOLE>(v, codes);
}

// keepCodes writes the codes of roundBlock to a row, from column `at` on.
template <int H> __device__ __forceinline__ void keepCodes(signed char* row, int at, const word (&codes)[2]) {
#pragma unroll
  for (int h = 0; h < 2; h++) *(word*)(row + (H == 4 ? placeOf(at + 32 * h) : at + 32 * h)) = codes[h];
}

// Rounding is a thread's part of it. A lane has columns 4*(lane%8) to +3 of block lane/8 of a piece, and those 32
// further. Gains are weights: prepare loads them before the kernel waits.
template <int H, bool WHOLE> struct Rounding {
  float4 gains[rowPieces][2], part[2 * rowPieces];

  __device__ __forceinline__ static int first(int piece) { return (threadIdx.x / 32 + 8 * piece) * 256 + (threadIdx.x & 31) / 8 * 64 + 4 * (threadIdx.x & 7); }

  __device__ __forceinline__ void prepare(const Row& r) {
#pragma unroll
    for (int p = 0; p < rowPieces; p++)
#pragma unroll
      for (int i = 0; i < 2; i++)
        if (r.gain && first(p) < r.cols) gains[p][i] = *(const float4*)(r.gain + first(p) + 32 * i);
  }

  // ask loads the row, after await.
  __device__ __forceinline__ void ask(const Row& r) {
    if (!r.x) {  // unchanged, whole chunks included
#pragma unroll
      for (int i = 0; i < 2; i++)
        if (threadIdx.x + 256 * i < 4 * RowSpace<H>::padded(r)) part[i] = ((const float4*)r.codes)[threadIdx.x + 256 * i];
#pragma unroll
      for (int i = 0; i < (H + 1) / 2; i++)
        if (threadIdx.x + 256 * i < H * RowSpace<H>::padded(r)) *(float2*)&part[2 + i] = r.tails[(size_t)(threadIdx.x + 256 * i) * r.tailRows];
      return;
    }
#pragma unroll
    for (int i = 0; i < 2 * rowPieces; i++)
      if (threadIdx.x + 256 * i < r.cols / 4) part[i] = ((const float4*)r.x)[threadIdx.x + 256 * i];
  }

  // round leaves the row as integers in shared memory, for all threads. upper is wideSum's.
  __device__ __forceinline__ void round(const Row& r, const RowSpace<H>& space, float upper[33]) {
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const float* row = (const float*)space.row;
    if (!r.x) {
#pragma unroll
      for (int i = 0; i < 2; i++)
        if (threadIdx.x + 256 * i < 4 * RowSpace<H>::padded(r)) ((float4*)space.codes)[threadIdx.x + 256 * i] = part[i];
#pragma unroll
      for (int i = 0; i < (H + 1) / 2; i++)
        if (threadIdx.x + 256 * i < H * RowSpace<H>::padded(r)) space.tails[threadIdx.x + 256 * i] = *(const float2*)&part[2 + i];
      __syncthreads();
      return;
    }
#pragma unroll
    for (int i = 0; i < 2 * rowPieces; i++)
      if (threadIdx.x + 256 * i < r.cols / 4) space.row[threadIdx.x + 256 * i] = part[i];
    __syncthreads();
    float by = 1.0f;
    if (r.gain) {
      float s = 0.0f;
      if (warp < 2) {
#pragma unroll 16
        for (int i = threadIdx.x; i < r.cols; i += 64) s = fused(row[i], row[i], s);
      }
      by = rsqrt32(add(quot(wideSum(s, upper), (float)r.cols), r.eps));
    }
    const bool leaves = blockIdx.x == 0;
#pragma unroll
    for (int p = 0; p < rowPieces; p++) {
      if ((warp + 8 * p) * 4 >= RowSpace<H>::padded(r)) break;
      const int at = first(p), group = at / 64 * H;
      float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
      if (at < r.cols) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float4 x = *(const float4*)(row + at + 32 * i);
          if (r.gain) {
            const float4& g = gains[p][i];
            x.x = mul(mul(x.x, by), g.x), x.y = mul(mul(x.y, by), g.y), x.z = mul(mul(x.z, by), g.z), x.w = mul(mul(x.w, by), g.w);
          }
          if (leaves && r.dst) *(float4*)(r.dst + at + 32 * i) = x;
          v[4 * i] = x.x, v[4 * i + 1] = x.y, v[4 * i + 2] = x.z, v[4 * i + 3] = x.w;
        }
      }
      word codes[2];
      float2 tails[H];
      roundBlock<H, WHOLE>(v, codes, tails);
      keepCodes<H>(space.codes, at, codes);
#pragma unroll
      for (int h = 0; h < H; h++)
        if ((threadIdx.x & 7) == 0) space.tails[group + h] = tails[h];
      if (leaves && r.codes && at < r.cols) {
        keepCodes<H>(r.codes, at, codes);
#pragma unroll
        for (int h = 0; h < H; h++)
          if ((threadIdx.x & 7) == 0) r.tails[(size_t)(group + h) * r.tailRows] = tails[h];
      }
    }
    __syncthreads();
  }
};
