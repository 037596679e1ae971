// Products of every format in the order of the CPU's portable code, and the quantization of their
// input. The most important formats have other kernels; these are the clear ones.
#include "product.cuh"
#include "quantize.cuh"

// quantizeLong is quantizeGroup for a group of more than 128 columns, which the warp reads twice.
__device__ __forceinline__ void quantizeLong(const float* x, int group, signed char* codes, float2* tail) {
  const int lane = threadIdx.x & 31;
  uint32_t top = 0;
  for (int i = lane; i < group; i += 32) top = max(top, __float_as_uint(x[i]) & 0x7fffffffu);
  top = __reduce_max_sync(~0u, top);
  const float most = __uint_as_float(top);
  float scale = quot(most, 127.0f), inverse = quot(127.0f, most);
  const bool finite = top < 0x7f800000u, none = top == 0 || !finite || __float_as_uint(inverse) == 0x7f800000u;
  int sum = 0;
  for (int i = lane; i < group; i += 32) {
    int n = none ? 0 : __float_as_int(add(mul(x[i], inverse), 12582912.0f)) - 0x4b400000;
    n = min(max(n, -127), 127);
    codes[i] = (signed char)n;
    sum += n;
  }
  sum = __reduce_add_sync(~0u, sum);
  if (none) scale = finite ? 0.0f : __uint_as_float(0x7fc00000u);
  if (lane == 0) *tail = make_float2(scale, mul((float)sum, scale));
}

// Kernel quantize, quantize_super: dynamic symmetric int8 quantization of activations, per group of columns or per
//   superblock.
// Layout: rows as float32 → codes [rows, columns] and tails [groups, rows]: scale and code sum.
// Grid: x: 8 groups, a warp each; y: rows.
// Sums: of codes: exact integers.
//
// quantize rounds groups of rows to integers, a warp for each group, or for eight of 16. With slots, row i goes to
// slots[i] and comes from there too or, if share rows come from one, from i/share; the rows from `alone`
// on are those of x once more.
extern "C" __global__ void __launch_bounds__(256) quantize(const float* x, int xStride, signed char* codes, int codeStride, float2* tails, int cols, int group, int tailRows, int whole, const int* slots, int share, int alone) {
  release();
  const int g = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x & 31, unit = group == 16 ? 128 : group, columns = min(unit, cols - g * unit);
  await();
  if (columns <= 0) return;
  const int row = slots ? slots[blockIdx.y] : blockIdx.y;
  x += (long long)(!share ? row : blockIdx.y < alone ? blockIdx.y / share : blockIdx.y - alone) * xStride + g * unit;
  if (group > 128) {
    quantizeLong(x, group, codes + (long long)row * codeStride + g * group, tails + (long long)g * tailRows + row);
    return;
  }
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = lane + 32 * i < columns ? x[lane + 32 * i] : 0;
  if (group == 16)
    quantizeSixteens(v, columns, {codes, tails, codeStride, group, tailRows, whole}, row, g * unit);
  else
    quantizeGroup(v, group, codes + (long long)row * codeStride, g * group, tails + (long long)g * tailRows + row, whole);
}

// quantize_super is quantize for superblocks.
extern "C" __global__ void __launch_bounds__(256) quantize_super(const float* x, int xStride, signed char* codes, int codeStride, float2* tails, int cols, int group, int tailRows, int whole, const int* slots, int share, int alone) {
  release();
  const int g = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x & 31;
  await();
  if (g * group >= cols) return;
  const int row = slots ? slots[blockIdx.y] : blockIdx.y;
  x += (long long)(!share ? row : blockIdx.y < alone ? blockIdx.y / share : blockIdx.y - alone) * xStride + g * group;
  codes += (long long)row * codeStride + g * group;
  float v[8];
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = x[128 * (i / 4) + 4 * lane + i % 4];
  quantizeSuper(v, codes, tails + 3ll * g * tailRows + row, tailRows);
}

// halfOf is the half nearest to f.
__device__ __forceinline__ word halfOf(float f) {
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}

// Kernel halve: int8 activations in groups of 16 → f16 for the tensor cores of many (nvfp4).
// Layout: codes and tails → [strip of 8 rows][block of 64 columns] of halves and scales.
// Grid: x: 8 blocks of 64 columns, a warp each; y: strips of 8 rows.
// Sums: none.
//
// halve writes rows in groups of 16 in the format of kernels of many rows: see addHalves of tensor.cuh. A warp has eight rows and 64
// columns.
extern "C" __global__ void __launch_bounds__(256) halve(const signed char* codes, int codeStride, const float2* tails, int tailRows, int rows, int blocks, byte* to) {
  release();
  const int block = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x & 31, first = blockIdx.y * 8, row = first + lane / 4, group = 4 * block + lane % 4;
  await();
  if (block >= blocks) return;
  to += ((long long)block * gridDim.y + blockIdx.y) * 1152;
  ((float*)(to + 1024))[lane] = row < rows ? __fmul_rn(tails[(long long)group * tailRows + row].x, 64.0f) : 0.0f;
  uint4 v = make_uint4(0, 0, 0, 0);
  if (row < rows) v = *(const uint4*)(codes + (long long)row * codeStride + 64 * block + 16 * (lane & 3));
  const word words[4] = {v.x, v.y, v.z, v.w};  // of each group columns 4*(lane%4) and on
  word out[8];
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const word w = words[i / 2] >> 16 * (i & 1);
    out[i] = halfOf(__fmul_rn((float)(signed char)w, 512.0f)) | halfOf(__fmul_rn((float)(signed char)(w >> 8), 512.0f)) << 16;
  }
#pragma unroll
  for (int i = 0; i < 2; i++) ((uint4*)to)[32 * i + lane] = make_uint4(out[4 * i], out[4 * i + 1], out[4 * i + 2], out[4 * i + 3]);
}

// values is codes as signed or, where they have biases, unsigned bytes.
__device__ __forceinline__ word values(const Weight& w, word q) {
  if (w.kind == BIASED || w.kind == POINTED) return q;
  word v = 0;
  for (int i = 0; i < 32; i += 8) v |= (integer(w, q >> i & 0xff) & 0xff) << i;
  return v;
}

__device__ __forceinline__ int dot(const Weight& w, word q, word a, int sum) {
  if (w.kind == BIASED || w.kind == POINTED)
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(q), "r"(a));
  else
    asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(q), "r"(a));
  return sum;
}

// groupSums is the integer sums of one output, group g and up to eight rows, and the sums of their codes.
__device__ __forceinline__ void groupSums(int (&sum)[8], int (&total)[8], const Product& p, const byte* tile, int g, int o, int first, int rows) {
  const Weight& w = p.w;
  const byte* block = blockOf(w, tile, g);
  const signed char* in[8];
#pragma unroll
  for (int r = 0; r < 8; r++) {
    in[r] = p.codes + (long long)(first + min(r, rows - 1)) * p.codeStride + (w.group == 16 ? placeOf(g * 16) : g * w.group);
    sum[r] = total[r] = 0;
  }
  for (int v = 0; v < w.group / 4; v++) {
    const word q = values(w, fours(w, block, v, o));
#pragma unroll
    for (int r = 0; r < 8; r++)
      if (r < rows) {
        const word a = ((const word*)in[r])[w.group == 16 ? 4 * v : v];
        sum[r] = dot(w, q, a, sum[r]), total[r] = __dp4a((int)a, 0x01010101, total[r]);
      }
  }
}

// Kernel integerPlain: GEMM reference for every integer format (dp4a).
// Layout: blocks of the CPU backend; rows as int8 codes.
// Grid: x: tiles of 16 outputs, y: strips of 8 rows.
// Sums: one chain over the groups of columns in ascending order, two fused multiply-adds per group (integerTiles of the CPU).
extern "C" __global__ void __launch_bounds__(256) integerPlain(const __grid_constant__ Product p) {
  __shared__ float products[16][8][16], sums[16][8];
  __shared__ float2 scales[16][16];
  release();
  await();
  const Weight& w = p.w;
  const int o = threadIdx.x & 15, slot = threadIdx.x / 16;
  for (int i = blockIdx.x; i < pieces(p); i += gridDim.x) {
    const Piece a = piece(p, i);
    const byte* tile = tileAt(w, a.matrix, a.tile);
    for (int r0 = blockIdx.y * 8; r0 < a.rows; r0 += gridDim.y * 8) {
      const int rows = min(8, a.rows - r0);
      float acc = 0;
      for (int g0 = 0; g0 < w.groups; g0 += 16) {
        const int g = g0 + slot;
        if (g < w.groups) {
          int sum[8], total[8];
          groupSums(sum, total, p, tile, g, o, a.first + r0, rows);
          const float2 scale = scaleOf(w, tile, g, o);
          const int zero = w.kind == POINTED ? scale.y : w.zero;
#pragma unroll
          for (int r = 0; r < 8; r++)
            if (r < rows) {
              const float2 t = p.tails[(long long)g * p.tailRows + a.first + r0 + r];
              products[slot][r][o] = __fmul_rn((float)(sum[r] + zero * total[r]), t.x);
              if (o == 0) sums[slot][r] = t.y;
            }
          scales[slot][o] = scale;
        }
        __syncthreads();
        if (slot < rows)
          for (int k = 0; k < min(16, w.groups - g0); k++) {
            const float2 s = scales[k][o];
            acc = __fmaf_rn(products[k][slot][o], s.x, acc);
            if (w.kind == BIASED && w.zero == 0) acc = __fmaf_rn(s.y, sums[k][slot], acc);
          }
        __syncthreads();
      }
      if (slot < rows) put(p, a.first + r0 + slot, a.tile * 16 + o, acc);
    }
  }
}

// Kernel floatPlain: GEMM reference for every format with float32 rows: dequantizes panels of 64 columns in shared memory.
// Layout: any layout of weights; rows as float32.
// Grid: x: tiles of 16 outputs, y: strips of 8 rows; a thread for each output and row.
// Sums: per output one chain of fused multiply-adds over the even columns, one over the odd ones, and their sum (floatTiles
//   of the CPU).
extern "C" __global__ void __launch_bounds__(128) floatPlain(const __grid_constant__ Product p) {
  __shared__ float panel[64][16];
  release();
  await();
  const Weight& w = p.w;
  const int o = threadIdx.x & 15, slot = threadIdx.x / 16;
  for (int i = blockIdx.x; i < pieces(p); i += gridDim.x) {
    const Piece a = piece(p, i);
    const byte* tile = tileAt(w, a.matrix, a.tile);
    for (int r0 = blockIdx.y * 8; r0 < a.rows; r0 += gridDim.y * 8) {
      const bool mine = r0 + slot < a.rows;
      const float* x = p.x + (long long)(a.first + r0 + (mine ? slot : 0)) * p.xStride;
      float even = 0, odd = 0;
      for (int g = 0; g < w.groups; g++) {
        const byte* block = blockOf(w, tile, g);
        const float2 s = w.laid == SUPER ? make_float2(0, 0) : scaleOf(w, tile, g, o);
        const int width = min(w.group, w.cols - g * w.group);
        for (int k0 = 0; k0 < width; k0 += 64) {
          const int n = min(64, width - k0);
          for (int k = slot; k < n; k += 8) panel[k][o] = w.laid == SUPER ? superAt(w, tile, g * w.group + k0 + k, o) : codedAt(w, block, s, k0 + k, o);
          __syncthreads();
          if (mine) {
            const float* v = x + g * w.group + k0;
            for (int k = 0; k + 1 < n; k += 2) {
              even = __fmaf_rn(v[k], panel[k][o], even);
              odd = __fmaf_rn(v[k + 1], panel[k + 1][o], odd);
            }
            if (n & 1) even = __fmaf_rn(v[n - 1], panel[n - 1][o], even);
          }
          __syncthreads();
        }
      }
      if (mine) put(p, a.first + r0 + slot, a.tile * 16 + o, __fadd_rn(even, odd));
    }
  }
}

// Kernel embed: embedding lookup with dequantization and a factor, for listed ids or for ids drawn on the device.
// Layout: any layout of weights → float32.
// Grid: x: columns, y: rows.
// Sums: none.
//
// embed decodes rows of a table: those that the call lists or, with drawn, whose ids are numbers
// there, one a row; any row for an invalid id.
extern "C" __global__ void __launch_bounds__(256) embed(const __grid_constant__ Weight w, float* dst, int dstStride, const Call* call, const float* drawn, int drawnStride, float factor) {
  release();
  await();
  const int id = drawn ? min(max((int)drawn[(long long)blockIdx.y * drawnStride], 0), w.rows - 1) : call->ids[blockIdx.y];
  float* y = dst + (long long)blockIdx.y * dstStride;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < w.cols; i += gridDim.x * blockDim.x) y[i] = mul(numberAt(w, 0, id, i), factor);
}
