// Products of many rows, for prompts. A block has 32*ACROSS outputs: ACROSS warps with two tiles
// each for 8*STRIPS rows, and DOWN times as many for more rows. Inputs of a group are copied a few groups ahead; sums
// of all groups stay in registers, so their order is the order of the loop.
#pragma once
#include "tensor.cuh"

template <int BITS, int GROUP, int SCALES, int ACROSS, int DOWN, int STRIPS, int S> __device__ __forceinline__ void many(const Product& p) {
  constexpr int BLOCK = blockBytes<BITS, GROUP, SCALES>(), CODES = GROUP * 2 * BITS, ROWS = DOWN * 8 * STRIPS, TILES = 2 * ACROSS, THREADS = 32 * ACROSS * DOWN;
  constexpr bool SIGNED = SCALES >= SYMMETRIC, HALVED = halved<SCALES>;
  constexpr int WEIGHTS = TILES * BLOCK, ACTS = ROWS * GROUP * (HALVED ? 2 : 1), H = groupsIn<SCALES>;
  constexpr int TAILS = 2 * lists<SCALES>, STAGE = WEIGHTS + ACTS + ROWS * TAILS, ROW = HALVED ? halvedBlock / 128 : GROUP / 16;  // TAILS: bytes of a row's
  static_assert(HALVED || ROWS <= THREADS);
  extern __shared__ __align__(16) byte stages[];
  release();
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, wo = warp % ACROSS, wr = warp / ACROSS;
  const int tile0 = blockIdx.y * TILES, row0 = blockIdx.x * ROWS, groups = p.w.groups;
  // Each thread copies the same pieces of every group. Pieces beyond the last tile or row are read
  // from elsewhere, and the results are not used.
  constexpr int NW = (WEIGHTS / 16 + THREADS - 1) / THREADS, PIECES = (ROWS * ROW + THREADS - 1) / THREADS, NA = HALVED ? 1 : PIECES;
  const byte* weight[NW];
  const signed char* code[NA];
#pragma unroll
  for (int i = 0; i < NW; i++) {
    const int k = threadIdx.x + i * THREADS;
    weight[i] = tileAt(p.w, 0, min(tile0 + k / (BLOCK / 16), p.w.tiles - 1)) + k % (BLOCK / 16) * 16;
  }
#pragma unroll
  for (int i = 0; i < NA; i++) {
    const int k = threadIdx.x + i * THREADS;
    if constexpr (HALVED)
      code[i] = p.codes + row0 * (halvedBlock / 8) + k * 16;
    else
      code[i] = p.codes + (long long)min(row0 + k / ROW, p.rows - 1) * p.codeStride + k % ROW * 16;
  }
  const float2* tail = p.tails + min(row0 + 2 * (int)threadIdx.x, p.tailRows - 2);
  if constexpr (SIGNED) tail = p.tails + min(row0 + (int)threadIdx.x, p.tailRows - 1);
  auto weights = [&](word to) {
#pragma unroll
    for (int i = 0; i < NW; i++) {
      if (threadIdx.x + i * THREADS < WEIGHTS / 16) copy16(to + (threadIdx.x + i * THREADS) * 16, weight[i]);
      weight[i] += BLOCK;
    }
  };
  auto rows = [&](word to) {
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      const int k = threadIdx.x + i * THREADS;
      if (k < ROWS * ROW) {
        if constexpr (HALVED)
          copy16(to + WEIGHTS + k * 16, code[0] + i * THREADS * 16);
        else if constexpr (SIGNED)
          copyGroups<SCALES>(to + WEIGHTS + k / ROW * GROUP, k % ROW, code[i]);
        else
          copy16(to + WEIGHTS + k * 16, code[i]);
      }
      if constexpr (!HALVED) code[i] += GROUP;
    }
    if constexpr (HALVED)
      code[0] += p.codeStride;
    else if constexpr (SIGNED) {
      if (threadIdx.x < ROWS) {
#pragma unroll
        for (int h = 0; h < H; h++) copyScale(to + WEIGHTS + ACTS + threadIdx.x * TAILS + 4 * h, tail + h * p.tailRows);
      }
      tail += H * p.tailRows;
    } else {
      if (threadIdx.x < ROWS / 2) copy16(to + WEIGHTS + ACTS + threadIdx.x * 16, tail);
      tail += p.tailRows;
    }
  };
  float factor[2];
#pragma unroll
  for (int i = 0; i < 2; i++) factor[i] = factorOf<BLOCK, SCALES>(tileAt(p.w, 0, min(tile0 + wo * 2 + i, p.w.tiles - 1)), groups);
  const word base = (word)__cvta_generic_to_shared(stages);
#pragma unroll 1
  for (int g = 0; g < S - 1; g++)
    if (g < groups) weights(base + g * STAGE);
  await();
#pragma unroll 1
  for (int g = 0; g < S - 1; g++) {
    if (g < groups) rows(base + g * STAGE);
    commit();
  }
  int now = 0, ask = S - 1;  // stages
  float acc[2][STRIPS][4];
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int n = 0; n < STRIPS; n++)
#pragma unroll
      for (int j = 0; j < 4; j++) acc[i][n][j] = 0;
#pragma unroll 1
  for (int g = 0; g < groups; g++) {
    arrived<S - 2>();
    __syncthreads();
    if (g + S - 1 < groups) weights(base + ask * STAGE), rows(base + ask * STAGE);
    commit();
    const byte* stage = stages + now * STAGE;
    now = now + 1 == S ? 0 : now + 1, ask = ask + 1 == S ? 0 : ask + 1;
    Codes<GROUP> c[2];
    word halves[2][4][4];
    float s[2][lists<SCALES>];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const byte* block = stage + (wo * 2 + i) * BLOCK;
      if constexpr (HALVED)
        widenBlock(halves[i], block, lane);
      else if constexpr (SIGNED)
        unpackSigned<BITS, SCALES>(c[i], block, lane);
      else
        unpack<BITS, GROUP>(c[i], block, lane);
      if constexpr (HALVED)
        shareScales(s[i], block + CODES, lane, factor[i]);
      else
        readScales<SCALES>(s[i], block + CODES, lane, factor[i]);
    }
#pragma unroll
    for (int n = 0; n < STRIPS; n++) {
      Tails<SCALES> t;
      if constexpr (HALVED) {
        const uint4* of = (const uint4*)(stage + WEIGHTS + (wr * STRIPS + n) * halvedBlock);
        const uint4 first = of[lane], last = of[32 + lane];
        const word b[8] = {first.x, first.y, first.z, first.w, last.x, last.y, last.z, last.w};
        readTails<SCALES>(t, of + 64, lane & 3);
#pragma unroll
        for (int i = 0; i < 2; i++) addHalves<SCALES>(acc[i][n], halves[i], b, t, s[i]);
      } else {
        Acts<GROUP> a;
        loadActs<GROUP>(a, (const signed char*)stage + WEIGHTS + (wr * STRIPS + n) * 8 * GROUP + lane * (GROUP / 4));
        readTails<SCALES>(t, stage + WEIGHTS + ACTS + (wr * STRIPS + n) * 8 * TAILS, lane & 3);
#pragma unroll
        for (int i = 0; i < 2; i++) {
          if constexpr (SIGNED) {
            addGroups<BITS, SCALES>(acc[i][n], c[i], a, t, s[i]);
          } else {
            int d[4];
            multiply<GROUP>(d, c[i], a);
#pragma unroll
            for (int j = 0; j < 4; j++) acc[i][n][j] = added<SCALES>(acc[i][n][j], d[j], t, s[i], j);
          }
        }
      }
    }
  }
  // Results go through shared memory, one tile of each warp at a time: rows are written whole.
  constexpr int OUTS = 16 * ACROSS, PITCH = OUTS + 4;
  float* out = (float*)stages;
  arrived<0>();
#pragma unroll
  for (int i = 0; i < 2; i++) {
    __syncthreads();
#pragma unroll
    for (int n = 0; n < STRIPS; n++)
#pragma unroll
      for (int j = 0; j < 4; j++) out[((wr * STRIPS + n) * 8 + (lane & 3) * 2 + (j & 1)) * PITCH + wo * 16 + lane / 4 + (j >> 1) * 8] = acc[i][n][j];
    __syncthreads();
#pragma unroll 1
    for (int k = threadIdx.x; k < ROWS * OUTS; k += THREADS) {
      const int row = row0 + k / OUTS, c = k % OUTS, tile = tile0 + c / 16 * 2 + i;
      if (row < p.rows) put(p, row, tile * 16 + c % 16, out[k / OUTS * PITCH + c]);
    }
  }
}

// Kernel many_BITS_COLUMNS_STRIPS: GEMM for prompts on tensor cores, int8 (nvfp4: f16 with exact f32 sums), with a multistage
//   pipeline of asynchronous copies.
// Layout: as in relay; nvfp4 rows as halves (halve).
// Grid: x: blocks of 32 or 64 rows, y: 4 tiles of 16 outputs. Warps have two tiles and 8 rows for each of STRIPS.
// Sums: one chain over the groups of columns in ascending order, two fused multiply-adds per group (integerTiles of the CPU).
//
// Two tiles of each of two warps, and 8*STRIPS rows of each of DOWN: small blocks, many of which fit on
// a multiprocessor, so that there is always one that computes.
#define MANY(NAME, BITS, GROUP, SCALES, DOWN, STRIPS, BLOCKS)                                                           \
  extern "C" __global__ void __launch_bounds__(64 * DOWN, BLOCKS) NAME(const __grid_constant__ Product p) { \
    many<BITS, GROUP, SCALES, 2, DOWN, STRIPS, 4>(p);                                                             \
  }
