// Products of a few dozen rows: panels.
//
// A block has a panel of tiles and all rows; there is one block on a multiprocessor, so that it reads
// the rows once. They are in shared memory, a span of groups at a time with the next one being loaded
// by separate warps. The other warps multiply a tile each, or PARTS of them one, each with some of
// the rows. Sums stay in registers, so their order is the order of the loop. The warps of a tile copy its weights
// for themselves, some chunks of groups ahead, so that others wait for them at the ends of spans only. Blocks take
// panels by stride, and the copies continue from one to the next.
#pragma once
#include "relay.cuh"

const int rowWarps = 2;  // that copy rows

// syncBlock waits for all threads of the block. Warps come here from different places of the program, which
// __syncthreads is not for.
__device__ __forceinline__ void syncBlock() { asm volatile("barrier.cta.sync 0;" ::: "memory"); }

// tileOf is the part that tile i of a product belongs to, and which of its tiles it is.
__device__ __forceinline__ const Part& tileOf(const Product& p, const Parts& parts, int i, int& tile) {
  tile = p.only ? p.only->only[i] : i;
  return partOf(parts, tile);
}

// copyRows copies spans of rows, codes [group, row] and then tails, to two alternating buffers. Beyond the
// last row it copies arbitrary memory, and the results are not used.
template <int GROUP, int ROWS, int SCALES> __device__ __forceinline__ void copyRows(const Product& p, int panels, int span, int thread, word to) {
  constexpr int PIECE = GROUP / 16, THREADS = 32 * rowWarps, HALF = ROWS / 2, H = groupsIn<SCALES>, TAILS = 2 * lists<SCALES>;
  const int groups = p.w.groups;
  int next = blockIdx.x, from = 0, buffer = 0;
  auto ask = [&] {
    if (next >= panels) return;
    const int count = min(span, groups - from);
    const signed char* codes = p.codes + from * GROUP;
    const float2* tails = p.tails + (long long)from * H * p.tailRows;
    const word at = to + buffer * span * ROWS * (GROUP + TAILS);
#pragma unroll 1
    for (int i = thread; i < count * PIECE; i += THREADS) {
      const word into = at + i / PIECE * (ROWS * GROUP) + i % PIECE * 16;
      const signed char* code = codes + i * 16;
      if constexpr (H == 2) {
#pragma unroll 8
        for (int r = 0; r < ROWS; r++, code += p.codeStride) copyGroups<SCALES>(at + i / PIECE * (ROWS * GROUP) + r * GROUP, i % PIECE, code);
      } else {
#pragma unroll
        for (int r = 0; r < ROWS; r++, code += p.codeStride) copy16(into + r * GROUP, code);
      }
    }
    if constexpr (H > 1) {
#pragma unroll 1
      for (int i = thread; i < count * H * ROWS; i += THREADS)
        copyScale(at + span * ROWS * GROUP + (i / (H * ROWS) * ROWS + i % ROWS) * TAILS + i / ROWS % H * 4, tails + (long long)(i / ROWS) * p.tailRows + i % ROWS);
    } else {
#pragma unroll 1
      for (int i = thread; i < count * HALF; i += THREADS) copy16(at + span * ROWS * GROUP + i * 16, tails + (long long)(i / HALF) * p.tailRows + i % HALF * 2);
    }
    buffer ^= 1, from += span;
    if (from >= groups) from = 0, next += gridDim.x;
  };
  await();
  ask();
#pragma unroll 1
  for (int i = blockIdx.x; i < panels; i += gridDim.x)
#pragma unroll 1
    for (int g = 0; g < groups; g += span) {
      commit();
      arrived<0>();
      syncBlock();
      ask();
    }
}

// together waits for the warps of a tile.
template <int PARTS> __device__ __forceinline__ void together(int tile) {
  if constexpr (PARTS == 1)
    __syncwarp();
  else
    asm volatile("barrier.cta.sync %0, %1;" ::"r"(1 + tile), "n"(32 * PARTS) : "memory");
}

// panel multiplies up to 8*NB*PARTS rows. G groups make a chunk, S chunks of a tile are under way. A span is a whole
// number of chunks.
template <int BITS, int GROUP, int SCALES, int NB, int PARTS, int G, int S>
__device__ __forceinline__ void panel(const Product& p, const Parts& parts, int span) {
  constexpr int BLOCK = blockBytes<BITS, GROUP, SCALES>(), CHUNK = G * BLOCK, CODES = GROUP * 2 * BITS, ROWS = 8 * NB * PARTS, TAILS = 2 * lists<SCALES>;
  constexpr bool SIGNED = SCALES >= SYMMETRIC;
  extern __shared__ __align__(16) byte memory[];
  release();
  const int lane = threadIdx.x & 31, all = blockDim.x / 32 - rowWarps, size = all / PARTS;
  const int warp = threadIdx.x / 32 / PARTS, part = threadIdx.x / 32 % PARTS;  // tile of the panel, part of the rows
  const int tiles = p.only ? p.only->onlys : parts.tiles, panels = (tiles + size - 1) / size;
  if (warp >= size) {
    copyRows<GROUP, ROWS, SCALES>(p, panels, span, threadIdx.x - all * 32, (word)__cvta_generic_to_shared(memory));
    return;
  }
  const int groups = p.w.groups, chunks = (groups + G - 1) / G, spanBytes = span * ROWS * (GROUP + TAILS);
  byte* ring = memory + 2 * spanBytes + warp * (S * CHUNK);
  const int mine = part * 512 + lane * 16;  // offset of this thread's first copy in a chunk
  const word into = (word)__cvta_generic_to_shared(ring) + mine;

  // The next chunk to load, and its address.
  int next = blockIdx.x, chunk = 0;
  const byte* source;
  auto seek = [&] {
    if (next >= panels) return;
    int tile;
    const Part& of = tileOf(p, parts, min(next * size + warp, tiles - 1), tile);
    source = of.data + (long long)tile * p.w.tileBytes + mine;
  };
  auto issue = [&](word to) {
    if (next < panels) {
      const int bytes = min(CHUNK, (groups - chunk * G) * BLOCK) - mine;
#pragma unroll
      for (int j = 0; j < CHUNK; j += 512 * PARTS)
        if (j < bytes) copy16(to + j, source + j);
      source += CHUNK;
      if (++chunk == chunks) chunk = 0, next += gridDim.x, seek();
    }
    commit();
  };
  seek();
#pragma unroll 1
  for (int i = 0; i < S; i++) issue(into + i * CHUNK);
  await();

  constexpr bool BYPARTS = tabled<SCALES> && NB == 1;
  const word ones = BYPARTS ? onesOf(p.w) : 0;
  float acc[NB][4], factor = 0;
  auto group = [&](const byte* weights, const byte* codes, const byte* tails) {
    Codes<GROUP> c;
    float s[lists<SCALES>];
    if constexpr (SIGNED && !BYPARTS)
      unpackSigned<BITS, SCALES>(c, weights, lane);
    else if constexpr (!SIGNED)
      unpack<BITS, GROUP>(c, weights, lane);
    readScales<SCALES>(s, weights + CODES, lane, factor);
#pragma unroll
    for (int n = 0; n < NB; n++) {
      Acts<GROUP> b;
      loadActs<GROUP>(b, (const signed char*)codes + n * 8 * GROUP);
      Tails<SCALES> f;
      readTails<SCALES>(f, tails + n * 8 * TAILS, lane & 3);
      if constexpr (BYPARTS) {
        addParts<SCALES>(acc[n], weights, lane, b, f, s, ones);
      } else if constexpr (SIGNED) {
        addGroups<BITS, SCALES>(acc[n], c, b, f, s);
      } else {
        int d[4];
        multiply<GROUP>(d, c, b);
#pragma unroll
        for (int j = 0; j < 4; j++) acc[n][j] = added<SCALES>(acc[n][j], d[j], f, s, j);
      }
    }
  };
  int stage = 0, buffer = 0;
#pragma unroll 1
  for (int now = blockIdx.x; now < panels; now += gridDim.x) {
    if constexpr (SCALES == NV) {
      int tile;
      const Part& of = tileOf(p, parts, min(now * size + warp, tiles - 1), tile);
      factor = factorOf<BLOCK, SCALES>(of.data + (long long)tile * p.w.tileBytes, groups);
    }
#pragma unroll
    for (int n = 0; n < NB; n++)
#pragma unroll
      for (int j = 0; j < 4; j++) acc[n][j] = 0;
#pragma unroll 1
    for (int first = 0; first < groups; first += span) {
      syncBlock();
      const byte* codes = memory + buffer * spanBytes + part * NB * 8 * GROUP + lane * (GROUP / 4);
      const byte* tails = memory + buffer * spanBytes + span * ROWS * GROUP + part * NB * 8 * TAILS;
      buffer ^= 1;
      const int end = min(first + span, groups);
#pragma unroll 1
      for (int k = first; k < end; k += G) {
        arrived<S - 1>();
        together<PARTS>(warp);
        const byte* weights = ring + stage * CHUNK;
        if (k + G <= groups) {
#pragma unroll
          for (int g = 0; g < G; g++) group(weights + g * BLOCK, codes + g * ROWS * GROUP, tails + g * ROWS * TAILS);
        } else {
#pragma unroll 1
          for (int g = 0; g < groups - k; g++) group(weights + g * BLOCK, codes + g * ROWS * GROUP, tails + g * ROWS * TAILS);
        }
        codes += G * ROWS * GROUP, tails += G * ROWS * TAILS;
        together<PARTS>(warp);
        issue(into + stage * CHUNK);
        stage = stage + 1 == S ? 0 : stage + 1;
      }
    }
    if (now * size + warp >= tiles) continue;
    int tile;
    const Part& of = tileOf(p, parts, now * size + warp, tile);
#pragma unroll
    for (int n = 0; n < NB; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int row = (part * NB + n) * 8 + (lane & 3) * 2 + (i & 1), out = tile * 16 + lane / 4 + (i >> 1) * 8;
        if (row >= p.rows || out >= of.rows) continue;
        float* y = of.dst + (long long)row * of.dstStride + out;
        float v = acc[n][i];
        if (of.add) v = __fadd_rn(*y, v);
        if (of.bias) v = __fadd_rn(v, of.bias[out]);
        *y = v;
      }
  }
}

// Kernel panel_BITS_COLUMNS_SHAPE: small-M GEMM of 5 to 32 rows on int8 tensor cores, weight-stationary per warp: a block
//   keeps all rows in shared memory and multiplies several tiles with them.
// Layout: as in relay.
// Grid: persistent: one block on each multiprocessor, a warp for each tile of a panel (narrow: several) and two warps that
//   copy rows.
// Sums: one chain over the groups of columns in ascending order, two fused multiply-adds per group (integerTiles of the CPU).
#define PANEL(NAME, BITS, GROUP, SCALES, NB, PARTS, G, S, TILES)                                                        \
  extern "C" __global__ void __launch_bounds__(32 * (TILES * PARTS + rowWarps), 1)                                    \
      NAME(const __grid_constant__ Product p, const __grid_constant__ Parts parts, int span) {                        \
    panel<BITS, GROUP, SCALES, NB, PARTS, G, S>(p, parts, span);                                                        \
  }
