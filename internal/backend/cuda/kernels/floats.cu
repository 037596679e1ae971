// Products with plain weights. A warp has a tile: for each output two lanes, one for the chain over
// its even columns and one for the odd ones. Blocks of 64 columns of weights and rows come
// through a ring of copies.
#include "tensor.cuh"

#define COLUMNS 64  // of a block of plain numbers
#define STAGES 6

// numberOf is column k of output o of a block.
template <int TYPE> __device__ __forceinline__ float numberOf(const byte* block, int k, int o) {
  if (TYPE == F32) return ((const float*)block)[16 * k + o];
  if (TYPE == F16) return half16(((const unsigned short*)block)[16 * k + o]);
  const word pair = ((const word*)block)[16 * (k / 2) + o];
  return __uint_as_float(k & 1 ? pair & 0xffff0000u : pair << 16);
}

__device__ __forceinline__ void copy4(word to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

// floats multiplies ROWS rows at a time.
template <int TYPE, int ROWS> __device__ __forceinline__ void floats(const Product& p) {
  constexpr int BLOCK = COLUMNS * 16 * (TYPE == F32 ? 4 : 2), STAGE = BLOCK + ROWS * COLUMNS * 4;
  extern __shared__ __align__(16) byte rings[];
  release();
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, o = lane & 15, odd = lane >> 4, groups = p.w.groups, cols = p.w.cols;
  byte* ring = rings + warp * STAGES * STAGE;
  const word into = (word)__cvta_generic_to_shared(ring);
  if (p.jobs) await();
  const int total = pieces(p);
#pragma unroll 1
  for (int item = blockIdx.x * 4 + warp; item < total; item += gridDim.x * 4) {
    const Piece a = piece(p, item);
    const byte* tile = tileAt(p.w, a.matrix, a.tile) + lane * 16;
#pragma unroll 1
    for (int r0 = blockIdx.y * ROWS; r0 < a.rows; r0 += gridDim.y * ROWS) {
      const int rows = min(ROWS, a.rows - r0);
      const float* x = p.x + (long long)(a.first + r0) * p.xStride;
      auto weights = [&](int g) {
        const word to = into + g % STAGES * STAGE + lane * 16;
        if (g < groups)
#pragma unroll
          for (int i = 0; i < BLOCK / 512; i++) copy16(to + i * 512, tile + g * BLOCK + i * 512);
      };
      // Even columns of a row, then the odd ones. Missing rows repeat the last.
      auto inputs = [&](int g) {
        const word to = into + g % STAGES * STAGE + BLOCK + (lane & 1) * (COLUMNS * 2) + lane / 2 * 4;
        if (g < groups)
#pragma unroll
          for (int i = 0; i < 2; i++) {
            const float* from = x + min(g * COLUMNS + i * 32 + lane, cols - 1);
#pragma unroll
            for (int r = 0; r < ROWS; r++) copy4(to + r * (COLUMNS * 4) + i * 64, from + (long long)min(r, rows - 1) * p.xStride);
          }
        commit();
      };
#pragma unroll 1
      for (int g = 0; g < STAGES - 1; g++) weights(g);
      await();
#pragma unroll 1
      for (int g = 0; g < STAGES - 1; g++) inputs(g);
      float acc[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; r++) acc[r] = 0;
#pragma unroll 1
      for (int g = 0; g < groups; g++) {
        arrived<STAGES - 2>();
        __syncwarp();
        const byte* block = ring + g % STAGES * STAGE;
        const float* in = (const float*)(block + BLOCK) + odd * (COLUMNS / 2);
        if ((g + 1) * COLUMNS <= cols) {
#pragma unroll
          for (int k = 0; k < COLUMNS / 2; k += 4) {
            float v[4];
#pragma unroll
            for (int i = 0; i < 4; i++) v[i] = numberOf<TYPE>(block, 2 * (k + i) + odd, o);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
              const float4 y = *(const float4*)(in + r * COLUMNS + k);
              acc[r] = __fmaf_rn(y.x, v[0], acc[r]);
              acc[r] = __fmaf_rn(y.y, v[1], acc[r]);
              acc[r] = __fmaf_rn(y.z, v[2], acc[r]);
              acc[r] = __fmaf_rn(y.w, v[3], acc[r]);
            }
          }
        } else {
#pragma unroll 1
          for (int k = odd; k < cols - g * COLUMNS; k += 2)
#pragma unroll
            for (int r = 0; r < ROWS; r++) acc[r] = __fmaf_rn(in[r * COLUMNS + k / 2], numberOf<TYPE>(block, k, o), acc[r]);
        }
        __syncwarp();
        weights(g + STAGES - 1), inputs(g + STAGES - 1);
      }
      arrived<0>();
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        const float sum = __fadd_rn(acc[r], __shfl_xor_sync(~0u, acc[r], 16));
        if (r < rows && !odd) put(p, a.first + r0 + r, a.tile * 16 + o, sum);
      }
    }
  }
}

// Kernel floats_TYPE_ROWS: GEMV (1 row) and GEMM (8 rows at a time) with bf16, f16 or f32 weights in f32 arithmetic, without
//   tensor cores.
// Layout: blocks of 16 outputs and 64 columns; rows as float32.
// Grid: x: 4 tiles of 16 outputs, a warp each; y: strips of ROWS rows.
// Sums: per output one chain of fused multiply-adds over the even columns, one over the odd ones, and their sum (floatTiles
//   of the CPU).
#define FLOATS(NAME, TYPE, ROWS)                                                                      \
  extern "C" __global__ void __launch_bounds__(128, 2) NAME(const __grid_constant__ Product p) { \
    floats<TYPE, ROWS>(p);                                                                       \
  }

FLOATS(floats_bf16_1, BF16, 1)
FLOATS(floats_bf16_8, BF16, 8)
FLOATS(floats_f16_1, F16, 1)
FLOATS(floats_f16_8, F16, 8)
FLOATS(floats_f32_1, F32, 1)
FLOATS(floats_f32_8, F32, 8)
