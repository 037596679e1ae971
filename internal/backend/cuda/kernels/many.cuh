// Products of many rows, for prompts. A block has 32*ACROSS outputs: ACROSS warps with two tiles
// each for 8*STRIPS rows, and DOWN times as many for more rows. What a group needs is copied a few groups ahead; sums
// of all groups stay in registers, so their order is the order of the loop.
#pragma once
#include "tensor.cuh"

// Sums of codes that are looked up begin at a power of two above their magnitude, so they are positive. As bits of a float such
// a number n is n*2^-149. So n*sa less the power times sa, rounded once, is one multiply-add, and the same as float32(I)*sa, but
// for a power of two, if sa is neither tiny nor huge. The scales of weights have that power of two. If some sa is, a stage is
// computed in another way.
template <int SCALES> constexpr int quickBegin = SCALES == NL ? 1 << 19 : SCALES == MX ? 1 << 16 : 1 << 15;
const float quickUp = 0x1p105f, quickDown = 0x1p-44f, quickScale = 0x1p44f, quickLeast = 0x1p-82f, quickMost = 0x1p22f;

// addQuickly adds the products of a stage, two tiles with strips of rows. Tails are what rows have of a block: a scale and what
// is subtracted, for each group.
template <int SCALES, int STRIPS>
__device__ __forceinline__ void addQuickly(float (&acc)[2][STRIPS][4], const Codes<64> (&c)[2], const signed char* acts, const byte* tails, float (&s)[2][lists<SCALES>]) {
  constexpr int H = groupsIn<SCALES>;
#pragma unroll
  for (int i = 0; i < 2 * 2 * H; i++) s[i / (2 * H)][i % (2 * H)] = __fmul_rn(s[i / (2 * H)][i % (2 * H)], quickScale);
#pragma unroll
  for (int n = 0; n < STRIPS; n++) {
    Acts<64> a;
    loadActs<64>(a, acts + n * 8 * 64);
    float4 t[2][H / 2];  // of two rows, by pairs of groups
#pragma unroll
    for (int i = 0; i < H; i++) t[i / (H / 2)][i % (H / 2)] = ((const float4*)(tails + n * 64 * H))[(threadIdx.x & 3) * H + i];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int d[H][4];
      multiplySigned<4, SCALES, quickBegin<SCALES>>(d, c[i], a);
#pragma unroll
      for (int h = 0; h < H; h++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const float4& of = t[j & 1][h / 2];
          acc[i][n][j] = __fmaf_rn(__fmaf_rn(__int_as_float(d[h][j]), h & 1 ? of.z : of.x, h & 1 ? of.w : of.y), s[i][j / 2 * H + h], acc[i][n][j]);
        }
    }
  }
}

// addSlowly is addQuickly for any scales of rows, which it reads where they are: those of block g, from row `first` on.
template <int SCALES, int STRIPS>
__device__ __forceinline__ void addSlowly(float (&acc)[2][STRIPS][4], const Codes<64> (&c)[2], const signed char* acts, const Product& p, int g, int first, const float (&s)[2][lists<SCALES>]) {
  constexpr int H = groupsIn<SCALES>;
#pragma unroll
  for (int n = 0; n < STRIPS; n++) {
    Acts<64> a;
    loadActs<64>(a, acts + n * 8 * 64);
    Tails<SCALES> t;
#pragma unroll
    for (int i = 0; i < 2 * H; i++) t.of[i & 1][i / 2] = p.tails[(long long)(g * H + i / 2) * p.tailRows + min(first + n * 8 + 2 * (int)(threadIdx.x & 3) + (i & 1), p.tailRows - 1)].x;
#pragma unroll
    for (int i = 0; i < 2; i++) addGroups<4, SCALES>(acc[i][n], c[i], a, t, s[i]);
  }
}

template <int BITS, int GROUP, int SCALES, int ACROSS, int DOWN, int STRIPS, int S> __device__ __forceinline__ void many(const Product& p) {
  constexpr int BLOCK = blockBytes<BITS, GROUP, SCALES>(), CODES = GROUP * 2 * BITS, ROWS = DOWN * 8 * STRIPS, TILES = 2 * ACROSS, THREADS = 32 * ACROSS * DOWN;
  constexpr int WEIGHTS = TILES * BLOCK, ACTS = ROWS * GROUP, H = groupsIn<SCALES>;
  constexpr bool QUICK = tabled<SCALES>;
  constexpr int TAILS = QUICK ? 8 * H : 2 * lists<SCALES>, STAGE = WEIGHTS + ACTS + ROWS * TAILS, ROW = GROUP / 16;  // TAILS: bytes of a row's
  constexpr bool SIGNED = SCALES >= SYMMETRIC;
  static_assert(ROWS <= THREADS);
  extern __shared__ __align__(16) byte stages[];
  release();
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, wo = warp % ACROSS, wr = warp / ACROSS;
  const int tile0 = blockIdx.y * TILES, row0 = blockIdx.x * ROWS, groups = p.w.groups;
  // Each thread copies the same pieces of every group. What is beyond the last tile or row is read
  // elsewhere, and nobody looks at the results.
  constexpr int NW = (WEIGHTS / 16 + THREADS - 1) / THREADS, NA = (ROWS * ROW + THREADS - 1) / THREADS;
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
  float own[H];  // with QUICK: scales of the thread's row, on their way to a stage
  __shared__ int strange[QUICK ? S : 1][THREADS / 32];
  auto keep = [&](int stage) {
    bool odd = false;
#pragma unroll
    for (int h = 0; h < H; h++) {
      odd |= own[h] != 0 && !(own[h] >= quickLeast && own[h] < quickMost);
      if (threadIdx.x < ROWS) ((float2*)(stages + stage * STAGE + WEIGHTS + ACTS + threadIdx.x * TAILS))[h] = make_float2(__fmul_rn(own[h], quickUp), __fmul_rn(own[h], -quickBegin<SCALES> * quickDown));
    }
    odd = __any_sync(~0u, odd);
    if (lane == 0) strange[QUICK ? stage : 0][warp] = odd;
  };
  auto rows = [&](word to) {
#pragma unroll
    for (int i = 0; i < NA; i++) {
      if (threadIdx.x + i * THREADS < ROWS * ROW) {
        if constexpr (SIGNED)
          copyGroups<SCALES>(to + WEIGHTS + (threadIdx.x + i * THREADS) / ROW * GROUP, (threadIdx.x + i * THREADS) % ROW, code[i]);
        else
          copy16(to + WEIGHTS + (threadIdx.x + i * THREADS) * 16, code[i]);
      }
      code[i] += GROUP;
    }
    if constexpr (QUICK) {
#pragma unroll
      for (int h = 0; h < H; h++) own[h] = threadIdx.x < ROWS ? tail[h * p.tailRows].x : 0.0f;
      tail += H * p.tailRows;
    } else if constexpr (SIGNED) {
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
    if (g < groups) {
      rows(base + g * STAGE);
      if constexpr (QUICK) keep(g);
    }
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
    if constexpr (QUICK)
      if (g > 0 && g + S - 2 < groups) keep(ask == 0 ? S - 1 : ask - 1);
    if (g + S - 1 < groups) weights(base + ask * STAGE), rows(base + ask * STAGE);
    commit();
    const byte* stage = stages + now * STAGE;
    bool slow = false;
    if constexpr (QUICK)
#pragma unroll
      for (int i = 0; i < THREADS / 32; i++) slow |= strange[now][i] != 0;
    now = now + 1 == S ? 0 : now + 1, ask = ask + 1 == S ? 0 : ask + 1;
    Codes<GROUP> c[2];
    float s[2][lists<SCALES>];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const byte* block = stage + (wo * 2 + i) * BLOCK;
      if constexpr (SIGNED)
        unpackSigned<BITS, SCALES>(c[i], block, lane);
      else
        unpack<BITS, GROUP>(c[i], block, lane);
      readScales<SCALES>(s[i], block + CODES, lane, factor[i]);
    }
    if constexpr (QUICK) {
      const signed char* acts = (const signed char*)stage + WEIGHTS + wr * STRIPS * 8 * GROUP + lane * (GROUP / 4);
      if (slow)
        addSlowly<SCALES>(acc, c, acts, p, g, row0 + wr * STRIPS * 8, s);
      else
        addQuickly<SCALES>(acc, c, acts, stage + WEIGHTS + ACTS + wr * STRIPS * 8 * TAILS, s);
    }
#pragma unroll
    for (int n = 0; n < (QUICK ? 0 : STRIPS); n++) {
      Acts<GROUP> a;
      loadActs<GROUP>(a, (const signed char*)stage + WEIGHTS + (wr * STRIPS + n) * 8 * GROUP + lane * (GROUP / 4));
      Tails<SCALES> t;
      readTails<SCALES>(t, stage + WEIGHTS + ACTS + (wr * STRIPS + n) * 8 * TAILS, lane & 3);
      if constexpr (SIGNED) {
#pragma unroll
        for (int i = 0; i < 2; i++) addGroups<BITS, SCALES>(acc[i][n], c[i], a, t, s[i]);
      } else {
#pragma unroll
        for (int i = 0; i < 2; i++) {
          int d[4];
          multiply<GROUP>(d, c[i], a);
#pragma unroll
          for (int j = 0; j < 4; j++)
            acc[i][n][j] = added<SCALES>(acc[i][n][j], d[j], t, s[i], j);
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

// Two tiles of each of two warps, and 8*STRIPS rows of each of DOWN: small blocks, many of which fit on
// a multiprocessor, so that there is always one that computes.
#define MANY(NAME, BITS, GROUP, SCALES, DOWN, STRIPS, BLOCKS)                                                           \
  extern "C" __global__ void __launch_bounds__(64 * DOWN, BLOCKS) NAME(const __grid_constant__ Product p) { \
    many<BITS, GROUP, SCALES, 2, DOWN, STRIPS, 4>(p);                                                             \
  }
