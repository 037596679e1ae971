// Products of few rows, at the speed of memory: the relay.
//
// A team of warps shares a tile of 16 outputs and takes chunks of groups in turn. A warp computes
// the integer sums of its chunk and their products with the scales of the rows, waits
// for the accumulators of the previous chunk, adds to them in order, and passes them on: all but two
// of the multiply-adds per group run in parallel, and groups stay in order. The grid has as many blocks
// as fit on the device. Teams take tiles by stride; teams of one block are far apart, so that few tiles
// are on many blocks. The ring of copies continues across tiles. Several matrices
// that multiply the same rows are parts of one product: their tiles follow one another.
#pragma once
#include "tensor.cuh"

__device__ __forceinline__ void meet(int barrier) { asm volatile("barrier.cta.sync %0, 64;" ::"r"(barrier) : "memory"); }
__device__ __forceinline__ void hand(int barrier) { asm volatile("barrier.cta.arrive %0, 64;" ::"r"(barrier) : "memory"); }

__device__ __forceinline__ void read4(float (&v)[4], word at) {
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ void write4(word at, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(at), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

// Part is one of the matrices: its tiles, and the destination of its results.
struct Part {  // shared with Go
  const byte* data;
  const byte* other;  // matrix -1 of jobs, which is not part of the stack
  float* dst;
  const float* bias;  // [rows], or none
  int tiles, rows, dstStride, add;
};

const int maxParts = 8;

// Parts is all of them. With same, the rows of every job are row 0.
struct Parts {  // shared with Go
  int count, tiles, same, unused;
  Part part[maxParts];
};

// partOf is the part that a tile belongs to, whose own tiles are counted from 0 on.
__device__ __forceinline__ const Part& partOf(const Parts& parts, int& tile) {
  int i = 0;
#pragma unroll 1
  for (; i + 1 < parts.count && tile >= parts.part[i].tiles; i++) tile -= parts.part[i].tiles;
  return parts.part[i];
}

// pieces and piece are those of a product with parts; the tile of a piece is one of all parts.
__device__ __forceinline__ int pieces(const Product& p, const Parts& parts) {
  if (p.jobs) return parts.tiles * *p.jobCount;
  return p.only ? p.only->onlys : parts.tiles;
}

__device__ __forceinline__ Piece piece(const Product& p, const Parts& parts, int i) {
  if (p.jobs) {
    const Job j = p.jobs[i / parts.tiles];
    return {i % parts.tiles, j.matrix, j.first, j.rows};
  }
  return {p.only ? p.only->only[i] : i, 0, 0, p.rows};
}

// Chunks is the chunks of a warp, one after another: its share of the chunks of its team's
// pieces.
struct Chunks {
  int item, k;  // piece, chunk of its tile
  Piece piece;
};

// Walk is the iteration of a warp over its chunks: G groups each, of blocks of BLOCK bytes. A team has
// 2^shift warps, and a tile at least as many chunks: code with SHORT relies on that. With PAIRS the two teams of
// a block have the same tile of the first two parts.
template <int BLOCK, int G, bool SHORT = false, bool PAIRS = false> struct Walk {
  static constexpr int CHUNK = G * BLOCK, COPIES = (CHUNK / 16 + 31) / 32;
  const Product& p;
  const Parts& parts;
  const int shift, lane, warp, size, turn, next, half, team, teams, groups, chunks;
  const Job* jobs = nullptr;  // with PAIRS: a list in shared memory, if there is one
  int total;
  Chunks now, ask;     // being multiplied, and being loaded
  const byte* source;  // of ask

  __device__ __forceinline__ Walk(const Product& p, const Parts& parts, int shift)
      : p(p), parts(parts), shift(shift), lane(threadIdx.x & 31), warp(threadIdx.x / 32), size(1 << shift), turn(warp & (size - 1)),
        next(turn + 1 == size ? warp + 1 - size : warp + 1), half(warp >> shift),
        team(blockIdx.x + (PAIRS ? 0 : gridDim.x * half)), teams(PAIRS ? gridDim.x : gridDim.x * 8 >> shift), groups(p.w.groups), chunks((groups + G - 1) / G) {}

  // begin finds the first chunk of a number of pieces. Jobs must be there.
  __device__ __forceinline__ void begin(int pieces) {
    total = pieces;
    now.item = team + (SHORT ? 0 : turn / chunks * teams), now.k = SHORT ? turn : turn % chunks;
    if (now.item < total) now.piece = at(now.item);
    ask = now;
    if (ask.item < total) seek();
  }

  __device__ __forceinline__ Piece at(int i) const {
    if (!PAIRS || !jobs) return piece(p, parts, i);
    const Job j = jobs[i / parts.tiles];
    return {i % parts.tiles, j.matrix, j.first, j.rows};
  }

  // step advances by one chunk per warp of the team, and reports whether to another piece.
  __device__ __forceinline__ bool step(Chunks& c) {
    c.k += size;
    if (c.k < chunks) return false;
    do c.k -= chunks, c.item += teams;
    while (!SHORT && c.k >= chunks);
    if (c.item < total) c.piece = at(c.item);
    return true;
  }

  __device__ __forceinline__ const Part& part(int& tile) const { return PAIRS ? parts.part[half] : partOf(parts, tile); }

  __device__ __forceinline__ void seek() {
    int tile = ask.piece.tile;
    const Part& part = this->part(tile);
    source = tileOf(part, ask.piece, tile) + ask.k * CHUNK;
  }

  __device__ __forceinline__ const byte* tileOf(const Part& part, const Piece& piece, int tile) const {
    return (piece.matrix < 0 ? part.other : part.data + piece.matrix * p.w.matrix) + (long long)tile * p.w.tileBytes;
  }

  // factor is that of a piece: see factorOf.
  template <int SCALES> __device__ __forceinline__ float factor(const Piece& piece) const {
    if constexpr (SCALES != NV) return 0.0f;
    int tile = piece.tile;
    const Part& part = this->part(tile);
    return factorOf<BLOCK, SCALES>(tileOf(part, piece, tile), groups);
  }

  // issue loads a chunk. If it is not whole, arbitrary data is copied for the rest.
  __device__ __forceinline__ void issue(word to) {
    if (ask.item < total) {
      const int bytes = min(G, groups - ask.k * G) * BLOCK;
      if (bytes == CHUNK) {
#pragma unroll
        for (int i = 0; i < COPIES; i++)
          if (lane + 32 * i < CHUNK / 16) copy16(to + i * 512, source + lane * 16 + i * 512);
      } else {
#pragma unroll 1
        for (int i = 0; i < COPIES; i++)
          if (lane + 32 * i < CHUNK / 16) copy16(to + i * 512, source + min(lane * 16 + i * 512, bytes - 16));
      }
      source += CHUNK << shift;
      if (step(ask) && ask.item < total) seek();
    }
    commit();
  }
};

// put writes the sum of an output of a piece, with the bias and the old value.
__device__ __forceinline__ void put(const Part& part, const Piece& piece, int row, int out, float v) {
  if (row >= piece.rows || out >= part.rows) return;
  float* y = part.dst + (long long)(piece.first + row) * part.dstStride + out;
  if (part.add) v = __fadd_rn(*y, v);
  if (part.bias) v = __fadd_rn(v, part.bias[out]);
  *y = v;
}

// relay multiplies up to 8*NB rows. G groups make a chunk, S chunks are in flight; a team has
// 2^shift warps. For an incomplete last chunk and for missing rows everything but
// the last step is computed as well, from arbitrary data.
template <int BITS, int GROUP, int SCALES, int NB, int G, int S> __device__ __forceinline__ void relay(const Product& p, const Parts& parts, int shift) {
  constexpr int BLOCK = blockBytes<BITS, GROUP, SCALES>(), CHUNK = G * BLOCK, CODES = GROUP * 2 * BITS;
  constexpr bool AHEAD = NB * G <= 4;  // registers have space for the rows of the next chunk
  constexpr bool SIGNED = SCALES >= SYMMETRIC;
  constexpr int H = groupsIn<SCALES>;
  extern __shared__ __align__(16) byte ring[];
  __shared__ float4 baton[8][NB][32];
  release();
  Walk<BLOCK, G> w(p, parts, shift);
  Chunks& now = w.now;
  const int lane = w.lane, warp = w.warp, size = w.size, next = w.next, groups = w.groups, tailRows = p.tailRows;
  const int take = keep(1 + warp), give = keep(1 + next);  // barriers
  const word takeAt = keep((word)__cvta_generic_to_shared(&baton[warp][0][lane])), giveAt = keep((word)__cvta_generic_to_shared(&baton[next][0][lane]));
  if (p.jobs) await();
  w.begin(pieces(p, parts));
  const int total = w.total;
  byte* mine = ring + warp * S * CHUNK;
  const word into = (word)__cvta_generic_to_shared(mine) + lane * 16;
#pragma unroll 1
  for (int i = 0; i < S; i++) w.issue(into + i * CHUNK);
  if (!p.jobs) await();

  // The beginnings of a lane's rows of the chunk, and its tails.
  const signed char* rows[NB];
  const float2* tails;
  float factor;
  auto look = [&] {
    const int first = parts.same ? 0 : now.piece.first;
#pragma unroll
    for (int n = 0; n < NB; n++)
      rows[n] = p.codes + (long long)(first + min(n * 8 + lane / 4, now.piece.rows - 1)) * p.codeStride + now.k * (G * GROUP) + (SIGNED ? 0 : (lane & 3) * (GROUP / 4));
    tails = p.tails + (long long)now.k * (G * H) * tailRows + first + 2 * (lane & 3);
    factor = w.template factor<SCALES>(now.piece);
  };
  Acts<GROUP> acts[AHEAD ? G : 1][AHEAD ? NB : 1];
  Tails<SCALES> tail[AHEAD ? G : 1][AHEAD ? NB : 1];
  auto fetch = [&](int g, int n, Acts<GROUP>& a, Tails<SCALES>& t) {
    const float2* at = tails + g * H * tailRows + n * 8;
    if constexpr (SIGNED) {
      loadGroups<SCALES>(a, rows[n] + g * GROUP, lane & 3);
#pragma unroll
      for (int h = 0; h < H; h++) {
        const float4 both = *(const float4*)(at + h * tailRows);
        t.of[0][h] = both.x, t.of[1][h] = both.z;
      }
    } else {
      loadActs<GROUP>(a, rows[n] + g * GROUP);
      const float4 both = *(const float4*)at;
      t.of[0][0] = both.x, t.of[0][1] = both.y, t.of[1][0] = both.z, t.of[1][1] = both.w;
    }
  };
  auto ahead = [&] {
    if constexpr (AHEAD)
#pragma unroll
      for (int g = 0; g < G; g++)
#pragma unroll
        for (int n = 0; n < NB; n++) fetch(g, n, acts[g][n], tail[g][n]);
  };
  if (now.item < total) look(), ahead();
  // The first chunk begins with zeros, as if the last warp had passed them on.
  int stage = 0;
  if (w.turn + 1 == size && w.team < total) {
#pragma unroll
    for (int n = 0; n < NB; n++) write4(giveAt + n * 512, 0, 0, 0, 0);
    if (size > 1) hand(give);
  }
  while (now.item < total) {
    arrived<S - 1>();
    __syncwarp();
    float x[G][NB][H][4], y[G][NB][2], scale[G][lists<SCALES>];  // y: the sums of the rows
    const byte* blocks = mine + stage * CHUNK;
#pragma unroll
    for (int g = 0; g < G; g++) {
      readScales<SCALES>(scale[g], blocks + g * BLOCK + CODES, lane, factor);
      Codes<GROUP> c;
      if constexpr (SIGNED)
        unpackSigned<BITS, SCALES>(c, blocks + g * BLOCK, lane);
      else
        unpack<BITS, GROUP>(c, blocks + g * BLOCK, lane);
#pragma unroll
      for (int n = 0; n < NB; n++) {
        Acts<GROUP> a;
        Tails<SCALES> t;
        if constexpr (AHEAD)
          a = acts[g][n], t = tail[g][n];
        else
          fetch(g, n, a, t);
        if constexpr (SIGNED) {
          int d[H][4];
          multiplySigned<BITS, SCALES>(d, c, a);
#pragma unroll
          for (int h = 0; h < H; h++)
#pragma unroll
            for (int j = 0; j < 4; j++) x[g][n][h][j] = __fmul_rn(signedSum<BITS, SCALES>(d[h][j]), t.of[j & 1][h]);
        } else {
          int d[4];
          multiply<GROUP>(d, c, a);
#pragma unroll
          for (int j = 0; j < 4; j++) x[g][n][0][j] = weighed<SCALES>(d[j], t.of[j & 1][0], t.of[j & 1][1], scale[g][j / 2 * 2 + 1]);
          y[g][n][0] = t.of[0][1], y[g][n][1] = t.of[1][1];
        }
      }
    }
    __syncwarp();
    w.issue(into + stage * CHUNK);
    stage = stage + 1 == S ? 0 : stage + 1;
    const Chunks was = now;
    if (!w.step(now)) {
#pragma unroll
      for (int n = 0; n < NB; n++) rows[n] += G * GROUP << shift;
      tails += (long long)(G * H << shift) * tailRows;
    } else if (now.item < total) {
      look();
    }
    if (now.item < total) ahead();
    const bool last = was.k == w.chunks - 1, whole = !last || groups % G == 0;

    // The other warps of the team wait from here to hand.
    if (size > 1) meet(take);
    float acc[NB][4];
#pragma unroll
    for (int n = 0; n < NB; n++) read4(acc[n], takeAt + n * 512);
    auto group = [&](int g) {
#pragma unroll
      for (int n = 0; n < NB; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          if constexpr (SIGNED) {
#pragma unroll
            for (int h = 0; h < H; h++) acc[n][j] = __fmaf_rn(x[g][n][h][j], scale[g][j / 2 * H + h], acc[n][j]);
          } else {
            acc[n][j] = linked<SCALES>(acc[n][j], x[g][n][0][j], scale[g][j / 2 * 2], scale[g][j / 2 * 2 + 1], y[g][n][j & 1]);
          }
        }
    };
    if (whole) {
#pragma unroll
      for (int g = 0; g < G; g++) group(g);
    } else {
#pragma unroll
      for (int g = 0; g < G; g++)
        if (was.k * G + g < groups) group(g);
    }
#pragma unroll
    for (int n = 0; n < NB; n++) write4(giveAt + n * 512, last ? 0.0f : acc[n][0], last ? 0.0f : acc[n][1], last ? 0.0f : acc[n][2], last ? 0.0f : acc[n][3]);
    if (size > 1 && (!last || was.item + w.teams < total)) hand(give);
    if (last) {
      int tile = was.piece.tile;
      const Part& part = partOf(parts, tile);
#pragma unroll
      for (int n = 0; n < NB; n++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          put(part, was.piece, n * 8 + (lane & 3) * 2 + (j & 1), tile * 16 + lane / 4 + (j >> 1) * 8, acc[n][j]);
    }
  }
}

// Kernel relay_BITS_COLUMNS_STRIPS: small-M GEMM (up to 8 rows for each strip, at most 32) on int8 tensor cores, split over K
//   within a block (stream-K with ordered accumulators). Up to eight matrices of one format are one launch.
// Layout: blocks of 16 outputs and COLUMNS columns with BITS-bit codes in the register order of mma.m16n8k32, scales behind
//   the codes; rows as int8 codes with a scale and a code sum per group.
// Grid: persistent: as many blocks of 8 warps as the device runs at once, at most one for each tile of 16 outputs. A team of
//   2^shift warps has a tile and takes chunks of groups in turn.
// Sums: one chain over the groups of columns in ascending order, two fused multiply-adds per group (integerTiles of the CPU).
//   The warps of a team pass the accumulators on in that order.
#define RELAY(NAME, BITS, GROUP, SCALES, NB, G, S, BLOCKS)                                                              \
  extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                                           \
      NAME(const __grid_constant__ Product p, const __grid_constant__ Parts parts, int shift) {                       \
    relay<BITS, GROUP, SCALES, NB, G, S>(p, parts, shift);                                                              \
  }
