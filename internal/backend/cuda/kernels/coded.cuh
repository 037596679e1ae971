// Attention over pages of 8 bits and of 4: the integers and the few float operations of the CPU's Coded, whose
// comment has the arithmetic. Products of codes are exact, so tensor cores compute them. PACKED pages have 4 bits.
#pragma once
#include "attend.cuh"

const float magic = 12582912.0f;    // 3<<22: the float of its bits + n is magic + n, |n| < 1<<22
const int magicBits = 0x4b400000;
const float tiny = 7.888609052210118e-31f;  // 0x1p-100

// Products of 16×32 and 32×8 bytes, added to d: queries and keys, weights and values.
__device__ __forceinline__ void multiplyKeys(int (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiplyValues(int (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// exact is the number that an accumulator which began with magicBits has.
__device__ __forceinline__ float exact(int sum) { return sub(__int_as_float(sum), magic); }

// Widths that the fast kernels are for: G groups of a key, and 2*G tiles of eight columns of a value for each of a block's four warps.
// M tiles of 16 queries are a block's.

// Shared memory between the warps of a block.
template <int G, int M>
struct Told {
  static const int queries = 16 * M, queryBytes = G * codedGroup + 64;  // the rest keeps rows in different banks
  unsigned char codes[queries][queryBytes];
  unsigned weights[2][queries][16];   // high bytes of weights, by fours of positions, and low ones
  float sums[queries][16];            // of exp(score-top), by position mod 16
  float scales[queries][G];
  int starts[queries][G];
  float tops[4][queries];             // of each warp's scores
  unsigned most[4][queries];          // likewise the highest weights, as bits
  float top[queries], weight[queries]; // of all pages so far
  float old[queries], more[queries];   // factors of the old sum, and of the page's
  uint4 ranges[G][4][4];      // of PACKED pages: steps and lows of values, as in the page
};

// unpackKeys is codes of a key, with 128 added, of the levels of both halves of a group in two words.
__device__ __forceinline__ unsigned levelsOf(unsigned x, unsigned range) {
  return (x & 0x0f0f0f0fu) * (range & 0xff) + __byte_perm(range, 0, 0x1111);
}
__device__ __forceinline__ uint4 unpackKeys(uint2 x, unsigned range) {
  return make_uint4(levelsOf(x.x, range), levelsOf(x.y, range), levelsOf(x.x >> 4, range >> 16), levelsOf(x.y >> 4, range >> 16));
}

// unpackValues is the codes of sixteen positions of a column. A level keeps its byte while it is multiplied.
__device__ __forceinline__ unsigned unpackValues(unsigned x, unsigned step, unsigned low) {
#pragma unroll
  for (int b = 0; b < 4; b++) low += (x & 0xfu << 8 * b) * (step >> 8 * b & 0xff);
  return low ^ 0x80808080u;
}
__device__ __forceinline__ uint4 unpackValues(uint4 x, const uint4 *range, int t, int shift) {
  const uint4 step = range[t], low = range[4 + t];
  return make_uint4(unpackValues(x.x >> shift, step.x, low.x), unpackValues(x.y >> shift, step.y, low.y), unpackValues(x.z >> shift, step.z, low.z),
                    unpackValues(x.w >> shift, step.w, low.w));
}

// highest is the maximum over the four warps.
__device__ __forceinline__ float highest(const float *x, int step) { return fmaxf(fmaxf(x[0], x[step]), fmaxf(x[2 * step], x[3 * step])); }
__device__ __forceinline__ float highest(const unsigned *x, int step) { return __uint_as_float(max(max(x[0], x[step]), max(x[2 * step], x[3 * step]))); }

// A block has 16*M queries of a head of keys, or 16 if pages may be computed separately. Its four warps compute the scores of a quarter of
// the positions of a page each, and then a quarter of the columns.
//
// Sums of integers do not depend on the order, so positions are placed for the second product: thread t of four
// neighbors has positions 16t to 16t+15 as operand of the second product, sixteen bytes of a column of
// values. Of the first product it gets columns 2t and 2t+1, so column c of tile m is position
// 16(c/2)+2m+c%2, and a warp that has tiles 2w and 2w+1 ends with positions 16t+4w to 16t+4w+3 in thread t:
// a word of the second operand. Columns of codes in a group are placed alike: thread t has 16t to 16t+15.
//
// Heads of more than 256 numbers leave no registers for the keys of the next page: they are loaded when it begins, and values when
// scores are there.
template <bool PACKED, int G, int M>
__device__ __forceinline__ void coded(const Call *call, const Layer &a) {
  __shared__ __align__(16) Told<G, M> told;
  const int mostGroups = G, mostTiles = 2 * G, queries = 16 * M;
  const bool early = G <= 4;
  const int tid = threadIdx.x, lane = tid & 31, warp = uniform(tid / 32), row = lane / 4, t = lane & 3, share = a.share();
  const int groups = a.keyGroups(), tiles = a.columns() / 8, halves = a.split ? 1 : M, bytes = PACKED ? packedHalf : codedGroup;
  const float minus = __int_as_float(0xff800000);
  release();
  await();
  const bool split = apart(a, call);
  const int chunk = split ? chunkOf(a, call, 16 * halves) : 0;
  Work w;
#pragma unroll 1
  for (int index = blockIdx.x; work(a, call, index, 16 * halves, chunk, &w); index += gridDim.x) {
    const int n = uniform(min(16 * halves, w.s.n * share - w.first));
    __syncthreads();
#pragma unroll 1
    for (int i = tid; i < 16 * halves * groups * 4; i += 128) {
      const int q = i / (groups * 4), k = i % (groups * 4), j = w.first + q;
      const size_t at = ((size_t)(w.s.first + j / share) * a.heads + w.kv * share + j % share) * groups;
      uint4 x = make_uint4(0, 0, 0, 0);
      if (q < n && !PACKED) x = *(const uint4 *)(a.codes + at * codedGroup + k * 16);
      if (q < n && PACKED) {  // eight columns of either half of a group
        const signed char *codes = a.codes + (at + k / 4) * codedGroup + k % 4 * 8;
        const uint2 lower = *(const uint2 *)codes, upper = *(const uint2 *)(codes + packedHalf);
        x = make_uint4(lower.x, lower.y, upper.x, upper.y);
      }
      *(uint4 *)(told.codes[q] + k * 16) = x;
      if (k % 4 == 0) {
        told.scales[q][k / 4] = q < n ? a.scales[at + k / 4] : 0.0f;
        told.starts[q][k / 4] = q < n ? a.starts[at + k / 4] : magicBits;
      }
    }
    if (tid < queries) told.top[tid] = minus, told.weight[tid] = 0.0f;
    __syncthreads();
    const int c = warp * 8 + 2 * t;
    int pos[M][2];  // of this thread's queries; a missing query sees nothing
    float out[M][mostTiles][4];
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int q = m * 16 + e * 8 + row;
        pos[m][e] = q < n ? w.s.pos + (w.first + q) / share : nowhere;
      }
#pragma unroll
      for (int i = 0; i < mostTiles; i++) out[m][i][0] = out[m][i][1] = out[m][i][2] = out[m][i][3] = 0.0f;
    }
    // Keys and scales of a page are loaded while the previous page is computed, its values when it begins.
    uint4 k[mostGroups][2], v[mostTiles];
    uint2 levels[mostGroups][2], ranges[G / 4], nextRanges[G / 4];  // of PACKED pages; ranges of values
    unsigned keyRanges[mostGroups][2];
    float4 keyScales[mostGroups], nextScales, valueScales;
    const unsigned char *page = call->page[w.s.pages + w.from];
    auto ask = [&] {
      unsigned char *keys = a.rows((unsigned char *)page, 0, w.kv), *values = a.rows((unsigned char *)page, 1, w.kv);
      const int at = row / 2 * 16 + warp * 4 + row % 2;
      const unsigned char *key = keys + at * groups * bytes + t * (bytes / 4);
      const unsigned *range = (const unsigned *)(keys + pageTokens * groups * bytes) + at;
      const float *scales = a.keyScales(keys, groups) + t * 16 + warp * 4;
#pragma unroll
      for (int g = 0; g < mostGroups; g++)
        if (g < groups) {
#pragma unroll
          for (int i = 0; i < 2; i++) {
            const unsigned char *from = key + (2 * i * groups + g) * bytes;
            if (PACKED) levels[g][i] = *(const uint2 *)from, keyRanges[g][i] = range[g * pageTokens + 2 * i];
            else k[g][i] = *(const uint4 *)from;
          }
          keyScales[g] = *(const float4 *)(scales + g * pageTokens);
        }
      nextScales = *(const float4 *)(a.valueScales(values) + t * 16 + warp * 4);
#pragma unroll
      for (int i = 0; i < G / 4; i++)
        if (PACKED && warp + 4 * i < a.valueGroups()) nextRanges[i] = *(const uint2 *)(values + (warp + 4 * i) * packedValues + packedHalf * pageTokens + lane * 8);
    };
    if (early && w.from < w.to) ask();
    const int end = uniform(w.to);
#pragma unroll 1
    for (int p = uniform(w.from); p < end; p++) {
      const unsigned char *values = a.rows((unsigned char *)page, 1, w.kv);
      auto askValues = [&] {
#pragma unroll
        for (int i = 0; i < mostTiles; i += PACKED ? 2 : 1) {  // columns 32 apart share bytes
          const unsigned char *from = values + (PACKED ? i / 2 * packedValues + warp * 8 * pageTokens : (warp + 4 * i) * 8 * pageTokens);
          v[i] = (PACKED ? 4 * i : warp + 4 * i) >= tiles ? make_uint4(0, 0, 0, 0) : *(const uint4 *)(from + row * pageTokens + t * 16);
        }
      };
      if (early) askValues();
      else ask();
      valueScales = nextScales;
#pragma unroll
      for (int i = 0; i < G / 4; i++) ranges[i] = nextRanges[i];
      if (p + 1 < end) page = call->page[w.s.pages + p + 1];
      float s[M][2][4];
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int e = 0; e < 2; e++) s[m][e][0] = s[m][e][1] = s[m][e][2] = s[m][e][3] = 0.0f;
#pragma unroll
      for (int g = 0; g < mostGroups; g++) {
        if (g >= groups) continue;
        const float4 sk = keyScales[g];
        if (PACKED) k[g][0] = unpackKeys(levels[g][0], keyRanges[g][0]), k[g][1] = unpackKeys(levels[g][1], keyRanges[g][1]);
#pragma unroll
        for (int m = 0; m < M; m++) {
          if (m >= halves) continue;
          const int q = m * 16 + row;
          const uint4 x = *(const uint4 *)(told.codes[q] + g * codedGroup + t * 16), y = *(const uint4 *)(told.codes[q + 8] + g * codedGroup + t * 16);
          const int start[2] = {told.starts[q][g], told.starts[q + 8][g]};
          const float scale[2] = {told.scales[q][g], told.scales[q + 8][g]};
#pragma unroll
          for (int c = 0; c < 2; c++) {
            int sum[4] = {start[0], start[0], start[1], start[1]};
            multiplyKeys(sum, x.x, y.x, x.y, y.y, k[g][c].x, k[g][c].y);
            multiplyKeys(sum, x.z, y.z, x.w, y.w, k[g][c].z, k[g][c].w);
            const float first = c ? sk.z : sk.x, second = c ? sk.w : sk.y;
#pragma unroll
            for (int e = 0; e < 2; e++) {
              s[m][e][2 * c] = fused(mul(exact(sum[2 * e]), scale[e]), first, s[m][e][2 * c]);
              s[m][e][2 * c + 1] = fused(mul(exact(sum[2 * e + 1]), scale[e]), second, s[m][e][2 * c + 1]);
            }
          }
        }
      }
      if (!early) askValues();
      else if (p + 1 < end) ask();
      // Scores of masked positions are minus infinity.
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          if (m >= halves) continue;
          const int2 sees = a.sees(w.s, pos[m][e], p);
          float top = minus;
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const int at = t * 16 + warp * 4 + i;
            if (at < sees.x || at >= sees.y) s[m][e][i] = minus;
            top = fmaxf(top, s[m][e][i]);
          }
          top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
          top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
          if (t == 0) told.tops[warp][m * 16 + e * 8 + row] = top;
        }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < G / 4; i++)
        if (PACKED && warp + 4 * i < a.valueGroups()) ((uint2 *)told.ranges[warp + 4 * i])[lane] = ranges[i];
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          if (m >= halves) continue;
          const int q = m * 16 + e * 8 + row;
          const int2 sees = a.sees(w.s, pos[m][e], p);
          const float top = highest(&told.tops[0][q], queries), by[4] = {valueScales.x, valueScales.y, valueScales.z, valueScales.w};
          float sums[4];
          unsigned most = 0;
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const int at = t * 16 + warp * 4 + i;
            const bool seen = at >= sees.x && at < sees.y;
            const float x = seen ? expDown(sub(s[m][e][i], top)) : 0.0f;
            s[m][e][i] = seen ? mul(x, by[i]) : 0.0f;
            most = max(most, __float_as_uint(s[m][e][i]));
            sums[i] = x;  // and that of the threads before, one after another
#pragma unroll
            for (int j = 1; j < 4; j++) {
              const float before = __shfl_up_sync(0xffffffffu, sums[i], 1);
              if (t == j) sums[i] = add(before, x);
            }
          }
          most = max(most, __shfl_xor_sync(0xffffffffu, most, 1));
          most = max(most, __shfl_xor_sync(0xffffffffu, most, 2));
          if (t == 3) *(float4 *)&told.sums[q][warp * 4] = make_float4(sums[0], sums[1], sums[2], sums[3]);
          if (t == 0) told.most[warp][q] = most;
        }
      __syncthreads();
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          if (m >= halves) continue;
          const int q = m * 16 + e * 8 + row;
          const float most = highest(&told.most[0][q], queries), inverse = most >= tiny ? quot(65535.0f, most) : 0.0f;
          unsigned c[4];
#pragma unroll
          for (int i = 0; i < 4; i++) c[i] = __float_as_uint(add(mul(s[m][e][i], inverse), magic));
          const unsigned x = __byte_perm(c[0], c[1], 0x5140), y = __byte_perm(c[2], c[3], 0x5140);
          told.weights[0][q][t * 4 + warp] = __byte_perm(x, y, 0x7632);
          told.weights[1][q][t * 4 + warp] = __byte_perm(x, y, 0x5410);
        }
      if (tid < n) {
        float x[16];
#pragma unroll
        for (int i = 0; i < 16; i++) x[i] = told.sums[tid][i];
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = add(x[i], x[i + 8]);
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = add(x[i], x[i + 4]);
        const float weight = add(add(x[0], x[2]), add(x[1], x[3]));
        const float top = highest(&told.tops[0][tid], queries), scale = quot(highest(&told.most[0][tid], queries), 65535.0f);
        const int2 range = a.sees(w.s, w.s.pos + (w.first + tid) / share, p);
        if (range.x < range.y) {
          if (split) {
            a.tops[slotOf(a, w, p, w.first + tid)] = make_float4(top, weight, scale, 0.0f);
            told.old[tid] = 0.0f, told.more[tid] = 1.0f;
          } else {
            const float before = told.top[tid], all = top > before ? top : before;
            const float old = expDown(sub(before, all)), more = expDown(sub(top, all));
            told.top[tid] = all;
            told.weight[tid] = fused(weight, more, mul(told.weight[tid], old));
            told.old[tid] = old, told.more[tid] = mul(more, scale);
          }
        }
      }
      __syncthreads();
      if (PACKED)
#pragma unroll
        for (int i = 0; i < mostTiles; i += 2)
          if (4 * i < tiles) v[i + 1] = unpackValues(v[i], told.ranges[i / 2][2], t, 4), v[i] = unpackValues(v[i], told.ranges[i / 2][0], t, 0);
#pragma unroll
      for (int m = 0; m < M; m++) {
        if (m >= halves) continue;
        const int q = m * 16 + row;
        const uint4 h0 = *(const uint4 *)&told.weights[0][q][t * 4], h1 = *(const uint4 *)&told.weights[0][q + 8][t * 4];
        const uint4 l0 = *(const uint4 *)&told.weights[1][q][t * 4], l1 = *(const uint4 *)&told.weights[1][q + 8][t * 4];
        bool sees[2];
        float old[2] = {0.0f, 0.0f}, more[2] = {0.0f, 0.0f};
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int2 range = a.sees(w.s, pos[m][e], p);
          sees[e] = range.x < range.y;
          if (sees[e]) old[e] = told.old[q + 8 * e], more[e] = told.more[q + 8 * e];
        }
#pragma unroll
        for (int i = 0; i < mostTiles; i++) {
          if (4 * i >= tiles) continue;
          int high[4] = {magicBits, magicBits, magicBits, magicBits}, low[4] = {magicBits, magicBits, magicBits, magicBits};
          multiplyValues(high, h0.x, h1.x, h0.y, h1.y, v[i].x, v[i].y);
          multiplyValues(low, l0.x, l1.x, l0.y, l1.y, v[i].x, v[i].y);
          multiplyValues(high, h0.z, h1.z, h0.w, h1.w, v[i].z, v[i].w);
          multiplyValues(low, l0.z, l1.z, l0.w, l1.w, v[i].z, v[i].w);
#pragma unroll
          for (int j = 0; j < 4; j++) {
            const float sum = fused(fused(exact(high[j]), 256.0f, exact(low[j])), more[j / 2], mul(out[m][i][j], old[j / 2]));
            out[m][i][j] = sees[j / 2] ? sum : out[m][i][j];
          }
        }
      }
      if (!split && p + 1 < end) continue;
      // Sums of a single page are written unscaled. Others pass through the answer, so that the code after it
      // exists once.
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int q = m * 16 + e * 8 + row, j = w.first + q, limit = split ? tiles * 8 : a.value;
          if (q >= n) continue;
          float *to = split ? a.sums + slotOf(a, w, p, j) * (tiles * 8) : a.dst + (size_t)(w.s.first + j / share) * a.dstStride + (w.kv * share + j % share) * a.value;
#pragma unroll
          for (int i = 0; i < mostTiles; i++) {
            if (c + 32 * i < limit) to[c + 32 * i] = out[m][i][2 * e];
            if (c + 32 * i + 1 < limit) to[c + 32 * i + 1] = out[m][i][2 * e + 1];
            out[m][i][2 * e] = out[m][i][2 * e + 1] = 0.0f;
          }
        }
    }
    if (split) continue;
#pragma unroll 1
    for (int q = row; q < n; q += 8) {
      const int j = w.first + q, r = w.s.first + j / share, h = w.kv * share + j % share;
      const float weight = told.weight[q];
#pragma unroll 2
      for (int i = 0; i < 2 * mostTiles; i++) {
        const int d = c + i / 2 * 32 + i % 2;
        if (d < a.value) finish(a, r, h, d, a.dst[(size_t)r * a.dstStride + h * a.value + d], weight, gateOf(a, r, h, d));
      }
    }
  }
}

// For every other width, and latent rows, which are keys and values in one and have one scale: without
// tensor cores, and page after page. A block has anyQueries queries.
const int anyQueries = 16;

struct Any {
  float scores[pageTokens][anyQueries];  // then exp(score-top) times the value's scale
  int weights[pageTokens][anyQueries];
  float top[anyQueries], weight[anyQueries], old[anyQueries], more[anyQueries];
  int from[anyQueries], to[anyQueries];
};

// keyCodes is four codes of key k of a part of some groups, with 128 added; c is a multiple of four.
template <bool PACKED>
__device__ __forceinline__ unsigned keyCodes(const unsigned char *rows, int groups, int k, int c) {
  if (!PACKED) return *(const unsigned *)(rows + k * groups * codedGroup + c);
  const int g = c / codedGroup, half = c / packedHalf & 1;
  const unsigned range = *(const unsigned *)(rows + pageTokens * groups * packedHalf + (g * pageTokens + k) * 4) >> 16 * half;
  return levelsOf(*(const unsigned *)(rows + (k * groups + g) * packedHalf + c % packedHalf) >> 4 * half, range);
}

// valueCode is column d of value k.
template <bool PACKED>
__device__ __forceinline__ int valueCode(const unsigned char *rows, int k, int d) {
  if (!PACKED) return (signed char)rows[d * pageTokens + k];
  const int half = d / packedHalf & 1;
  const unsigned char *group = rows + d / codedGroup * packedValues + k, *range = group + (packedHalf + 2 * half) * pageTokens;
  return (group[d % packedHalf * pageTokens] >> 4 * half & 15) * range[0] + range[pageTokens] - 128;
}

// Any width.
template <bool PACKED>
__device__ __forceinline__ void codedAny(const Call *call, const Layer &a) {
  extern __shared__ float out[];  // [anyQueries][value]
  __shared__ Any x;
  const int tid = threadIdx.x, lane = tid & 31, share = a.share(), keyGroups = a.keyGroups(), groups = a.groups();
  release();
  await();
  Work w;
#pragma unroll 1
  for (int index = blockIdx.x; work(a, call, index, anyQueries, 0, &w); index += gridDim.x) {
    const int n = uniform(min(anyQueries, w.s.n * share - w.first));
    __syncthreads();
    for (int i = tid; i < n * a.value; i += 128) out[i] = 0.0f;
    if (tid < anyQueries) x.top[tid] = __int_as_float(0xff800000), x.weight[tid] = 0.0f;
#pragma unroll 1
    for (int p = w.from; p < w.to; p++) {
      unsigned char *page = call->page[w.s.pages + p];
      unsigned char *rows[2] = {a.rows(page, 0, w.kv), a.rows(page, 1, w.kv)};
      const int count[2] = {keyGroups, groups - keyGroups};
      const float *keyScales[2] = {a.keyScales(rows[0], count[0]), a.keyScales(rows[1], count[1])};
      __syncthreads();
      if (tid < n) {
        const int pos = w.s.pos + (w.first + tid) / share;
        const int2 sees = a.sees(w.s, pos, p);
        x.from[tid] = sees.x, x.to[tid] = sees.y;
      }
#pragma unroll 1
      for (int i = tid; i < n * pageTokens; i += 128) {
        const int q = i / pageTokens, k = i % pageTokens, j = w.first + q;
        const size_t at = ((size_t)(w.s.first + j / share) * a.heads + w.kv * share + j % share) * groups;
        float s = 0.0f;
#pragma unroll 1
        for (int g = 0; g < groups; g++) {
          const int which = g >= keyGroups, own = which ? g - keyGroups : g;
          const unsigned char *part = which ? rows[1] : rows[0];
          const int n = which ? count[1] : count[0];
          const float *scales = which ? keyScales[1] : keyScales[0];
          int sum = 0;
#pragma unroll 4
          for (int c = 0; c < codedGroup; c += 4)
            sum = __dp4a(*(const int *)(a.codes + (at + g) * codedGroup + c), (int)(keyCodes<PACKED>(part, n, k, own * codedGroup + c) ^ 0x80808080u), sum);
          s = fused(mul((float)sum, a.scales[at + g]), scales[(a.latent ? 0 : own * pageTokens) + k], s);
        }
        x.scores[k][q] = s;
      }
      __syncthreads();
      const float *valueScales = a.latent ? keyScales[0] : a.valueScales(rows[1]);
#pragma unroll 1
      for (int q = uniform(tid / 32); q < n; q += 4) {
        const int from = x.from[q], to = x.to[q];
        float e[2], y[2], top = __int_as_float(0xff800000);
        unsigned most = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const int k = lane + 32 * i;
          e[i] = k >= from && k < to ? x.scores[k][q] : __int_as_float(0xff800000);
          top = fmaxf(top, e[i]);
        }
#pragma unroll
        for (int i = 16; i > 0; i >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, i));
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const int k = lane + 32 * i;
          const bool seen = k >= from && k < to;
          e[i] = seen ? expDown(sub(e[i], top)) : 0.0f;
          y[i] = seen ? mul(e[i], valueScales[k]) : 0.0f;
          most = max(most, __float_as_uint(y[i]));
        }
        const float highest = __uint_as_float(__reduce_max_sync(0xffffffffu, most)), inverse = highest >= tiny ? quot(65535.0f, highest) : 0.0f;
#pragma unroll
        for (int i = 0; i < 2; i++) x.weights[lane + 32 * i][q] = __float_as_int(add(mul(y[i], inverse), magic)) & 0xffff;
        const float up = __shfl_xor_sync(0xffffffffu, e[0], 16), upper = __shfl_xor_sync(0xffffffffu, e[1], 16);
        const float weight = sum16(lane < 16 ? add(add(add(e[0], up), e[1]), upper) : 0.0f);
        if (lane == 0 && from < to) {
          const float before = x.top[q], all = top > before ? top : before;
          const float old = expDown(sub(before, all)), more = expDown(sub(top, all));
          x.top[q] = all;
          x.weight[q] = fused(weight, more, mul(x.weight[q], old));
          x.old[q] = old, x.more[q] = mul(more, quot(highest, 65535.0f));
        }
      }
      __syncthreads();
#pragma unroll 1
      for (int d = tid; d < a.value; d += 128) {
        int sum[anyQueries];
#pragma unroll
        for (int q = 0; q < anyQueries; q++) sum[q] = 0;
#pragma unroll 1
        for (int k = 0; k < pageTokens; k++) {
          const int code = a.latent ? (int)(keyCodes<PACKED>(rows[0], keyGroups, k, d & ~3) >> 8 * (d & 3) & 0xff) - 128 : valueCode<PACKED>(rows[1], k, d);
#pragma unroll
          for (int q = 0; q < anyQueries; q++)
            if (q < n) sum[q] += x.weights[k][q] * code;
        }
#pragma unroll
        for (int q = 0; q < anyQueries; q++)
          if (q < n && x.from[q] < x.to[q]) out[q * a.value + d] = fused((float)sum[q], x.more[q], mul(out[q * a.value + d], x.old[q]));
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int i = tid; i < n * a.value; i += 128) {
      const int q = i / a.value, j = w.first + q;
      finish(a, w.s.first + j / share, w.kv * share + j % share, i % a.value, out[i], x.weight[q], gateOf(a, w.s.first + j / share, w.kv * share + j % share, i % a.value));
    }
  }
}
