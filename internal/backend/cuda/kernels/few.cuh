// Products of one, two or four rows with weights of 4 bits in groups of 64, or signed ones in groups of 32 or 16: the
// relay, with no column of the tensor cores idle.
//
// Tensor cores multiply a block with eight columns at once. If rows are fewer, the columns are
// several groups of each row: of the block of one group only the columns of that group count, so of the
// sums of eight groups a lane keeps as many as it has of one group with eight rows. The work per sum,
// which is most of the work, is reduced by that factor. The sums go through shared
// memory to the lanes that add them up in order: one output and row each, or two rows of four.
//
// One row may come as floats (ROW): see row.cuh. Two matrices may be a gate and an up projection (GATED):
// the two teams of a block have the same tile of both, and the warp that finishes the second also writes
// silu(gate)*up, or gelu(gate)*up. If a product needs that as integers, the last
// block that has a tile of a group of 64 columns quantizes it.
#pragma once
#include <type_traits>

#include "choose.cuh"
#include "relay.cuh"
#include "row.cuh"

// Turned is sums of a warp on their way to other lanes: of up to two rows by output and group, of four
// in pairs of rows, permuted so that no two lanes use the same bank.
template <int R> struct Turned {
  static constexpr int G = 8;
  float sums[R][16][G], others[R][G];

  // set has the sums of columns 2*quad and one more, of part i of the chunk.
  __device__ __forceinline__ void set(int lane, int i, const float (&x)[4], const float (&o)[2]) {
    const int quad = lane & 3;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int row = (2 * quad + j) % R, g = i * (8 / R) + (2 * quad + j) / R;
      sums[row][lane / 4][g] = x[j], sums[row][lane / 4 + 8][g] = x[j + 2];
      if (lane < 4) others[row][g] = o[j];
    }
  }

  // get reads those of an output and row.
  __device__ __forceinline__ void get(int lane, float (&x)[1][G], float (&o)[1][G]) const {
    const int row = R == 1 ? 0 : lane / 16;
#pragma unroll
    for (int g = 0; g < G; g += 4) {
      *(float4*)&x[0][g] = *(const float4*)&sums[row][lane & 15][g];
      *(float4*)&o[0][g] = *(const float4*)&others[row][g];
    }
  }
};

template <> struct Turned<4> {
  static constexpr int G = 8;
  struct {
    float4 sums[16][4], unused[2];  // by output and pair of groups: group, row
  } pair[2];
  float4 others[2][4];

  __device__ __forceinline__ void set(int lane, int i, const float (&x)[4], const float (&o)[2]) {
    const int quad = lane & 3, output = lane / 4, to = i ^ (output >> 1 & 3);
    auto& p = pair[quad & 1];
    ((float2*)&p.sums[output][to])[quad >> 1] = make_float2(x[0], x[1]);
    ((float2*)&p.sums[output + 8][to])[quad >> 1] = make_float2(x[2], x[3]);
    if (lane < 4) ((float2*)&others[quad & 1][i])[quad >> 1] = make_float2(o[0], o[1]);
  }

  // get reads those of an output and two rows.
  __device__ __forceinline__ void get(int lane, float (&x)[2][G], float (&o)[2][G]) const {
    const int output = lane & 15;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float4 a = pair[lane / 16].sums[output][i ^ (output >> 1 & 3)], b = others[lane / 16][i];
      x[0][2 * i] = a.x, x[1][2 * i] = a.y, x[0][2 * i + 1] = a.z, x[1][2 * i + 1] = a.w;
      o[0][2 * i] = b.x, o[1][2 * i] = b.y, o[0][2 * i + 1] = b.z, o[1][2 * i + 1] = b.w;
    }
  }
};

// multiplyChunk leaves the sums of a chunk times the scales of the rows, and the scales of a lane's output.
template <int SCALES, int R>
__device__ __forceinline__ void multiplyChunk(const byte* blocks, const Acts<64> (&acts)[R], const float4 (&tail)[R], Turned<R>& turned, word (&scale)[8]) {
  constexpr int GROUP = 64, BLOCK = blockBytes<4, GROUP, BRIEF>(), SUB = 8 / R;
  const int lane = threadIdx.x & 31, quad = lane & 3, output = lane & 15;
#pragma unroll
  for (int i = 0; i < R; i++) {
    int sums[4];
#pragma unroll
    for (int s = 0; s < SUB; s++) {
      Codes<GROUP> c;
      unpack<4, GROUP>(c, blocks + (i * SUB + s) * BLOCK, lane);
      int d[4];
      multiply<GROUP>(d, c, acts[i]);
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (s == 0 || (2 * quad + (j & 1)) / R == s) sums[j] = d[j];
    }
    float x[4], zero[4] = {0, 0, 0, 0};
    if constexpr (zeroed<SCALES>) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const uint2 v = ((const uint2*)(blocks + (i * SUB + (2 * quad + j) / R) * BLOCK + GROUP * 8))[lane / 4];
        zero[j] = zeroIn(v.x), zero[j + 2] = zeroIn(v.y);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) x[j] = weighed<SCALES>(sums[j], j & 1 ? tail[i].z : tail[i].x, j & 1 ? tail[i].w : tail[i].y, zero[j]);
    turned.set(lane, i, x, {tail[i].y, tail[i].w});
  }
#pragma unroll
  for (int g = 0; g < 8; g++) scale[g] = ((const word*)(blocks + g * BLOCK + GROUP * 8))[2 * (output & 7) + (output >> 3)];
}

// Halves is Turned for pairs of groups: four sums are of two blocks, both groups of one and then of the other. The
// permutation avoids bank conflicts of writes and of reads.
template <int R> struct Halves {
  float4 sums[R][16][4];

  __device__ __forceinline__ float4* at(int row, int output, int i) { return &sums[row][output][i ^ (output & 2) ^ (output >> 2 & 1) ^ (R == 4 ? row >> 1 : 0)]; }

  // set writes the sums of columns 2*quad and one more, first those of their first groups.
  __device__ __forceinline__ void set(int lane, int i, const float (&x)[2][4]) {
    const int quad = lane & 3;
#pragma unroll
    for (int o = 0; o < 4; o += 2) {
      const int output = lane / 4 + 4 * o;
      if constexpr (R == 1) {
        *at(0, output, quad) = make_float4(x[0][o], x[1][o], x[0][o + 1], x[1][o + 1]);
      } else {
#pragma unroll
        for (int j = 0; j < 2; j++) {
          const int row = (2 * quad + j) % R, block = i * (8 / R) + 2 * quad / R;
          ((float2*)at(row, output, block / 2))[block & 1] = make_float2(x[0][o + j], x[1][o + j]);
        }
      }
    }
  }

  // setGroups has the sums of columns 2*quad and one more, which are rows of groups: part i of the chunk.
  __device__ __forceinline__ void setGroups(int lane, int i, const float (&x)[4]) {
    const int quad = lane & 3;
#pragma unroll
    for (int o = 0; o < 4; o += 2) {
      const int output = lane / 4 + 4 * o;
      if constexpr (R == 1) {
        ((float2*)at(0, output, 2 * i + quad / 2))[quad & 1] = make_float2(x[o], x[o + 1]);
      } else {
#pragma unroll
        for (int j = 0; j < 2; j++) {
          const int row = (2 * quad + j) % R, group = i * (8 / R) + (2 * quad + j) / R;
          ((float*)at(row, output, group / 4))[group & 3] = x[o + j];
        }
      }
    }
  }

  // getOwn reads N of those of an output and one row, for lanes from 16 on the second N if a part has as many.
  template <int N> __device__ __forceinline__ void getOwn(int lane, float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N / 4; i++) *(float4*)&x[4 * i] = *at(0, lane & 15, N == 8 ? i + lane / 16 * 2 : i);
  }

  // get reads those of an output and row, or two rows of four, which are 16 of the chunk's.
  template <int CHAINS, int N> __device__ __forceinline__ void get(int lane, float (&x)[CHAINS][N], int from) {
#pragma unroll
    for (int c = 0; c < CHAINS; c++)
#pragma unroll
      for (int i = 0; i < 4; i++) *(float4*)&x[c][from + 4 * i] = *at(R == 1 ? 0 : lane / 16 * CHAINS + c, lane & 15, i);
  }
};

// multiplyPairs is multiplyChunk for pairs of groups. Tails are scales: of a lane's two columns, of both groups.
template <int R>
__device__ __forceinline__ void multiplyPairs(const byte* blocks, const Acts<64> (&acts)[R], const float4 (&tail)[R], Halves<R>& turned, word (&scale)[8]) {
  constexpr int BLOCK = blockBytes<4, 64, SYMMETRIC>(), SUB = 8 / R;
  const int lane = threadIdx.x & 31, quad = lane & 3, output = lane & 15;
#pragma unroll
  for (int i = 0; i < R; i++) {
    int sums[2][4];
#pragma unroll
    for (int s = 0; s < SUB; s++) {
      Codes<64> c;
      unpackSigned<4, SYMMETRIC>(c, blocks + (i * SUB + s) * BLOCK, lane);
      int d[2][4];
      multiplySigned<4, SYMMETRIC>(d, c, acts[i]);
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (s == 0 || (2 * quad + (j & 1)) / R == s) sums[0][j] = d[0][j], sums[1][j] = d[1][j];
    }
    float x[2][4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      x[0][j] = __fmul_rn(signedSum<4, SYMMETRIC>(sums[0][j]), j & 1 ? tail[i].z : tail[i].x);
      x[1][j] = __fmul_rn(signedSum<4, SYMMETRIC>(sums[1][j]), j & 1 ? tail[i].w : tail[i].y);
    }
    turned.set(lane, i, x);
  }
#pragma unroll
  for (int g = 0; g < 8; g++) scale[g] = ((const word*)(blocks + g * BLOCK + 512))[2 * (output & 7) + (output >> 3)];
}

// Lone is a lane's constants for the products of one row: see onesOf, and 1 for its own group, 0 for others.
struct Lone {
  word ones, own[8];

  __device__ __forceinline__ Lone(const Weight& w) : ones(onesOf(w)) {
#pragma unroll
    for (int i = 0; i < 8; i++) own[i] = keep((threadIdx.x & 31) / 4 == i);
  }
};

// Lookup is the rows of some blocks with table codes, 16 groups: columns of the tensor cores are rows and
// groups, those of 8/R groups at a time.
template <int SCALES, int R> struct Lookup {
  static constexpr int H = groupsIn<SCALES>, G = 16 / H, SUB = 8 / R, WORDS = 4 / H;  // G: blocks
  word acts[2 * R][WORDS];  // of column lane/4, a lane's columns of the group
  float2 tail[2 * R];       // scales of columns 2*quad and one more

  // place is where the codes of group g of a row are, or a lane's part of them.
  static __device__ __forceinline__ int place(int g, int quad) { return H == 4 ? g / 4 * 64 + g % 4 * 4 + quad * 16 : g * 32 + quad * 8; }

  // load reads the rows. Codes are those of the group of column lane/4 in the first part, tails those of the groups of
  // the other two columns.
  template <bool TOGETHER> __device__ __forceinline__ void load(const signed char* codes, const float2* tails, int tailRows) {
#pragma unroll
    for (int i = 0; i < 2 * R; i++) {
      const signed char* from = codes + place(i * SUB, 0);
      if constexpr (H == 4)
        acts[i][0] = *(const word*)from;
      else
        *(uint2*)acts[i] = *(const uint2*)from;
      const float2* at = tails + i * SUB * tailRows;
      if constexpr (R == 1 && !TOGETHER) {
        tail[i] = make_float2(at[0].x, at[tailRows].x);
      } else {
        const float4 both = *(const float4*)at;
        tail[i] = make_float2(both.x, both.z);
      }
    }
  }

  // multiply writes the sums of a chunk times the scales of the rows. A product with
  // 32 columns has the codes of their one or two groups on the right, and zeros in the columns of other groups: so the
  // sums of all groups of a part add up side by side. For one row, both parts of the codes have separate sums, which
  // wait for one another less, and the zeros come from multiplications.
  __device__ __forceinline__ void multiply(const byte* blocks, Halves<R>& turned, const Lone& lone) const {
    constexpr int BLOCK = blockBytes<4, 64, SCALES>(), STEPS = H == 4 ? SUB / 2 : SUB;  // products of a part
    const int lane = threadIdx.x & 31, own = lane / 4 / R;
    int d[2][4];
#pragma unroll
    for (int b = 0; b < G; b++) {
      const uint4 words = ((const uint4*)(blocks + b * BLOCK))[lane];
#pragma unroll
      for (int k = 0; k < 2; k++) {
        word c[4][2];  // the operand as a sum of two
        lookUpParts<SCALES, R == 1>(c[0], c[2], k ? words.z : words.x, lone.ones);
        lookUpParts<SCALES, R == 1>(c[1], c[3], k ? words.w : words.y, lone.ones);
        const int i = (2 * b + k) / STEPS, step = (2 * b + k) % STEPS, left = H == 4 ? 2 * step : step, right = H == 4 ? left + 1 : left;
        const word first = R == 1 ? acts[i][0] * lone.own[left] : own == left ? acts[i][0] : 0;
        const word second = R == 1 ? acts[i][WORDS - 1] * lone.own[right] : own == right ? acts[i][WORDS - 1] : 0;
#pragma unroll
        for (int j = 0; j < 4; j++)
          if (step == 0) d[0][j] = MAGIC, d[1][j] = 0;
#pragma unroll
        for (int j = 0; j < 2; j++) {
          int(&sum)[4] = d[R == 1 ? j : 0];
          asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
              : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
              : "r"(c[0][j]), "r"(c[1][j]), "r"(c[2][j]), "r"(c[3][j]), "r"(first), "r"(second));
        }
        if (step + 1 < STEPS) continue;
        float x[4];
#pragma unroll
        for (int j = 0; j < 4; j++) x[j] = __fmul_rn(sumOf(d[0][j] + (R == 1 ? d[1][j] : 0)), j & 1 ? tail[i].y : tail[i].x);
        turned.setGroups(lane, i, x);
      }
    }
  }
};

// readWords reads the scales of a lane's output in blocks of 64 columns.
template <int N> __device__ __forceinline__ void readWords(word (&scale)[N], const byte* blocks, int output) {
#pragma unroll
  for (int b = 0; b < N; b++) scale[b] = ((const word*)(blocks + b * blockBytes<4, 64, SYMMETRIC>() + 512))[2 * (output & 7) + (output >> 3)];
}

// Gates is the destination of the gated product as integers: arrived counts the finished tiles of a group, and is
// zero before and after. Without it none are written.
// With jobs the matrices are experts of one row: those of pick and the shared one, or listed ones.
struct Gates {  // shared with Go
  unsigned* arrived;
  signed char* codes;
  float2* tails;
  int tailRows, jobs;
  int gelu, unused;  // GELU by tanh instead of SiLU
  Pick pick;
};

// arriveAt counts a tile, after all that the block wrote and before all that it reads. It returns how many there were.
__device__ __forceinline__ unsigned arriveAt(unsigned* at) {
  unsigned old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(old) : "l"(__cvta_generic_to_global(at)) : "memory");
  return old;
}

// roundGates has a block's warps round the groups that it is the last to have a tile of: H of them at a time.
template <int H, bool WHOLE> __device__ __forceinline__ void roundGates(const Gates& gates, const Part& part, int tiles) {
  const int lane = threadIdx.x & 31;
  __syncthreads();
#pragma unroll 1
  for (int tile = blockIdx.x + gridDim.x * (threadIdx.x / 32); tile < tiles; tile += gridDim.x * 8) {
    const int group = tile / 4;
    int last = 0;
    if (lane == 0) {
      last = arriveAt(gates.arrived + group) == 3;
      if (last) gates.arrived[group] = 0;
    }
    __syncwarp();
    if (!__shfl_sync(~0u, last, 0)) continue;
    const int at = group * 64 + 4 * (lane & 7);
    float v[8];
#pragma unroll
    for (int i = 0; i < 2; i++) *(float4*)(v + 4 * i) = __ldcg((const float4*)(part.dst + at + 32 * i));
    word codes[2];
    float2 tails[H];
    roundBlock<H, WHOLE>(v, codes, tails);
    if (lane < 8) keepCodes<H>(gates.codes, at, codes);
#pragma unroll
    for (int h = 0; h < H; h++)
      if (lane == 0) gates.tails[(size_t)(group * H + h) * gates.tailRows] = tails[h];
  }
}

// chunkOf is how many blocks make a chunk, stagesOf how many chunks are under way. Four rows in groups of 16 have no registers
// for more.
template <int SCALES, int R> constexpr int chunkOf = SCALES == NV && R == 4 ? 4 : 8;
template <int SCALES, int R> constexpr int stagesOf = 16 / chunkOf<SCALES, R>;

template <int SCALES, int R, bool ROW, bool GATED>
__device__ __forceinline__ void few(const Product& p, const Parts& parts, int shift, const Row& row, const Gates& gates) {
  constexpr int H = groupsIn<SCALES>, G = chunkOf<SCALES, R>, S = stagesOf<SCALES, R>, GROUP = 64, BLOCK = blockBytes<4, GROUP, BRIEF>(), CHUNK = G * BLOCK;
  constexpr int SUB = 8 / R, CHAINS = (R + 1) / 2;  // blocks, or groups, of a row that are columns together; rows of a lane
  constexpr bool PAIRS = SCALES == SYMMETRIC, TABLED = tabled<SCALES>;
  constexpr int PARTS = TABLED ? G * H / 16 : 1;  // of a chunk, 16 groups each
  // For one row and table codes, lanes from 16 on have the second half of a chunk, and add it to the result of the
  // others: there are half as many scales to decode.
  constexpr bool SPLIT = TABLED && R == 1;
  constexpr int OWN = SPLIT ? G / 2 : G;  // blocks that a lane adds
  extern __shared__ __align__(16) byte ring[];
  __shared__ float baton[8][CHAINS][32];
  __shared__ __align__(16) typename std::conditional<H != 1, Halves<R>, Turned<R>>::type turned[8];
  __shared__ float gate[4][2][16], upper[33];  // of two tiles of a warp, alternating; of the norm
  __shared__ Picked picked;
  __shared__ __align__(16) Job list[maxPicks + 1];
  Walk<BLOCK, G, true, GATED> w(p, parts, shift);
  Chunks& now = w.now;
  const int lane = w.lane, warp = w.warp, size = w.size, next = w.next, groups = w.groups, tailRows = ROW ? 1 : p.tailRows;
  const int quad = lane & 3, output = lane & 15;
  RowSpace<H> space;
  Rounding<H, zeroed<SCALES>> rounding;
  if constexpr (ROW) {
    space = RowSpace<H>(ring + 8 * S * CHUNK, row);
    rounding.prepare(row);
  }
  const bool jobs = GATED ? gates.jobs > 0 : p.jobs != nullptr;
  if (!jobs) release();
  if (jobs) {  // the next kernel may read the inputs of the selection before it waits
    await();
    release();
    if constexpr (ROW) rounding.ask(row);
    if constexpr (GATED) {
      if (gates.pick.logits) {
        if (warp == 0) picked.choose(gates.pick);
        __syncthreads();
        if (threadIdx.x < gates.jobs) list[threadIdx.x] = Job{picked.chosen[threadIdx.x], 8 * (int)threadIdx.x, 1, 0};
      } else if (threadIdx.x < gates.jobs) {
        list[threadIdx.x] = p.jobs[threadIdx.x];
      }
      __syncthreads();
      w.jobs = list;
    }
  }
  w.begin(GATED && jobs ? parts.tiles * gates.jobs : pieces(p, parts));
  const int total = w.total;
  byte* mine = ring + warp * S * CHUNK;
  const word into = (word)__cvta_generic_to_shared(mine) + lane * 16;
  // If a row is to be quantized, the last of the first chunks comes behind it: it is loaded while
  // threads quantize.
#pragma unroll 1
  for (int i = 0; i < (ROW ? S - 1 : S); i++) w.issue(into + i * CHUNK);
  if (!jobs) {
    await();
    if constexpr (ROW) rounding.ask(row);
  }
  if constexpr (ROW) {
    w.issue(into + (S - 1) * CHUNK);
    rounding.round(row, space, upper);
  }

  // Column n of the tensor cores is row n%R and group n/R of SUB groups. As a right operand a lane has
  // column lane/4, of sums columns 2*quad and one more.
  const signed char* codes;
  const float2* tails;
  float factor;
  auto look = [&] {
    const int first = ROW || parts.same ? 0 : now.piece.first, n = lane / 4;
    const int at = TABLED ? now.k * G * GROUP + Lookup<TABLED ? SCALES : MX, R>::place(n / R, quad) : (now.k * G + n / R) * GROUP + quad * (16 / H);
    const int group = now.k * G * H + (TABLED ? 1 : H) * (2 * quad / R);
    if constexpr (ROW) {
      codes = space.codes + at;
      tails = space.tails + group;
    } else {
      codes = p.codes + (long long)(first + min(n % R, now.piece.rows - 1)) * p.codeStride + at;
      tails = p.tails + (long long)group * tailRows + first + 2 * quad % R;
    }
    factor = w.template factor<SCALES>(now.piece);
  };
  Acts<GROUP> acts[R];
  float4 tail[R];
  using Looked = Lookup<TABLED ? SCALES : MX, R>;
  Looked lookup[PARTS];
  const typename std::conditional<TABLED, Lone, const Weight&>::type lone(p.w);
  auto ahead = [&] {
    if constexpr (TABLED)
#pragma unroll
      for (int i = 0; i < PARTS; i++) lookup[i].template load<ROW>(codes + i * Looked::G * GROUP, tails + i * 16 * tailRows, tailRows);
#pragma unroll
    for (int i = 0; i < (TABLED ? 0 : R); i++) {
      if constexpr (PAIRS) {
        loadGroups<SCALES>(acts[i], codes + i * SUB * GROUP, 0);
        const float2* at = tails + i * SUB * 2 * tailRows;
        if constexpr (ROW) {
          const float4 a = *(const float4*)at, b = *(const float4*)(at + 2);
          tail[i] = make_float4(a.x, a.z, b.x, b.z);
        } else if constexpr (R == 1) {
          tail[i] = make_float4(at[0].x, at[tailRows].x, at[2 * tailRows].x, at[3 * tailRows].x);
        } else {
          const float4 a = *(const float4*)at, b = *(const float4*)(at + tailRows);
          tail[i] = make_float4(a.x, b.x, a.z, b.z);
        }
        continue;
      }
      loadActs<GROUP>(acts[i], codes + i * SUB * GROUP);
      const float2* at = tails + i * SUB * tailRows;
      if constexpr (R == 1 && !ROW) {
        const float2 a = at[0], b = at[tailRows];
        tail[i] = make_float4(a.x, a.y, b.x, b.y);
      } else {
        tail[i] = *(const float4*)at;
      }
    }
  };
  if (now.item < total) look(), ahead();
  int stage = 0, tiles = 0;
  if (w.turn + 1 == size && w.team < total) {
#pragma unroll
    for (int i = 0; i < CHAINS; i++) baton[next][i][lane] = 0;
    if (size > 1) hand(1 + next);
  }
  while (now.item < total) {
    arrived<S - 1>();
    __syncwarp();
    word scale[OWN];
    const float by = factor;
    float x[CHAINS][OWN * H], others[CHAINS][G], slope[OWN][H < 2 ? 2 : H];
    if constexpr (TABLED) {
#pragma unroll
      for (int i = 0; i < PARTS; i++) {
        lookup[i].multiply(mine + stage * CHUNK + i * Looked::G * BLOCK, turned[warp], lone);
        if (i + 1 == PARTS) continue;
        __syncwarp();
        if constexpr (SPLIT)
          turned[warp].getOwn(lane, x[0]);
        else
          turned[warp].get(lane, x, 16 * i);
        __syncwarp();
      }
      readWords(scale, mine + stage * CHUNK + (SPLIT ? lane / 16 * (OWN * BLOCK) : 0), output);
    } else if constexpr (PAIRS)
      multiplyPairs<R>(mine + stage * CHUNK, acts, tail, turned[warp], scale);
    else
      multiplyChunk<SCALES, R>(mine + stage * CHUNK, acts, tail, turned[warp], scale);
    __syncwarp();
    w.issue(into + stage * CHUNK);
    stage = stage + 1 == S ? 0 : stage + 1;
    const Chunks was = now;
    if (!w.step(now)) {
      codes += G * GROUP << shift;
      tails += (long long)(G * H << shift) * tailRows;
    } else if (now.item < total) {
      look();
    }
    if (now.item < total) ahead();
    if constexpr (SPLIT) {
      if (PARTS == 1 || lane >= 16) turned[warp].getOwn(lane, x[0]);
    } else if constexpr (H > 1) {
      turned[warp].get(lane, x, 16 * (PARTS - 1));
    } else {
      turned[warp].get(lane, x, others);
    }
#pragma unroll
    for (int g = 0; g < OWN; g++) scalesOf<SCALES>(slope[g], scale[g], by);
    const bool last = was.k == w.chunks - 1;
    const int count = last ? groups - was.k * G : G;

    // The other warps of the team wait from here to hand.
    if (size > 1) meet(1 + warp);
    float acc[CHAINS];
#pragma unroll
    for (int i = 0; i < CHAINS; i++) acc[i] = baton[warp][i][SPLIT ? output : lane];
    if (SPLIT && size == 1) __syncwarp();  // other lanes write it
#pragma unroll
    for (int g = 0; g < G; g++) {
      if (SPLIT && g == OWN) acc[0] = __shfl_sync(~0u, acc[0], output);
      if (g < count)
#pragma unroll
        for (int i = 0; i < CHAINS; i++) {
          if constexpr (H > 1) {
#pragma unroll
            for (int h = 0; h < H; h++) acc[i] = __fmaf_rn(x[i][H * (g % OWN) + h], slope[g % OWN][h], acc[i]);
          } else {
            acc[i] = linked<SCALES>(acc[i], x[i][g], slope[g][0], slope[g][1], others[i][g]);
          }
        }
    }
#pragma unroll
    for (int i = 0; i < CHAINS; i++)
      if (!SPLIT || lane >= 16) baton[next][i][SPLIT ? output : lane] = last ? 0.0f : acc[i];
    if (size > 1 && (!last || was.item + w.teams < total)) hand(1 + next);
    if (last) {
      int tile = was.piece.tile;
      if constexpr (GATED) {
        float& mine = gate[w.turn][tiles++ & 1][output];
        const Part& part = w.part(tile);
        const bool has = SPLIT ? lane >= 16 : lane < 16;
        if (has && part.dst) put(part, was.piece, 0, tile * 16 + output, acc[0]);
        if (w.half == 0 && has) mine = acc[0];
        meet(9 + w.turn);
        if (w.half == 1 && has) put(parts.part[2], was.piece, 0, tile * 16 + output, mul(gates.gelu ? geluTanh32(mine) : silu32(mine), acc[0]));
        continue;
      }
      const Part& part = w.part(tile);
#pragma unroll
      for (int i = 0; i < CHAINS; i++)
        if (SPLIT ? lane >= 16 : lane < 16 * R) put(part, was.piece, SPLIT ? 0 : lane / 16 * CHAINS + i, tile * 16 + output, acc[i]);
    }
  }
  if constexpr (GATED)
    if (gates.arrived) roundGates<H, zeroed<SCALES>>(gates, parts.part[2], parts.tiles);
}

// Kernel few_BITS_COLUMNS_ROWS: GEMV and small-M GEMM of 1, 2 or 4 rows on int8 tensor cores. The columns of a tensor-core
//   product are several groups of a row, so that none is idle.
// Layout: as in relay.
// Grid: as in relay.
// Sums: one chain over the groups of columns in ascending order, two fused multiply-adds per group (integerTiles of the CPU).
#define FEW(NAME, SCALES, R)                                                                      \
  extern "C" __global__ void __launch_bounds__(256, 2)                                            \
      NAME(const __grid_constant__ Product p, const __grid_constant__ Parts parts, int shift) {   \
    few<SCALES, R, false, false>(p, parts, shift, Row(), Gates());                                \
  }

// Kernel row_BITS_COLUMNS: fused RMSNorm, quantization and GEMV of one row.
// Layout: as in relay; the row as float32, normed and quantized in the shared memory of every block.
// Grid: as in relay.
// Sums: the norm in wide lane order (rms_norm), the product as in relay.
//
// Kernel gated_BITS_COLUMNS: fused GEMV of two matrices and SwiGLU of one row (gate and up projection), with RMSNorm and
//   quantization before and quantization behind it where they are asked for; also for the experts of one row.
// Layout: as in row.
// Grid: as in relay; the two teams of a block have the same tile of both matrices.
// Sums: as in row.
#define ROWS(ROW_NAME, GATED_NAME, SCALES)                                                                                                                               \
  extern "C" __global__ void __launch_bounds__(256, 2)                                                                                                                   \
      ROW_NAME(const __grid_constant__ Product p, const __grid_constant__ Parts parts, int shift, const __grid_constant__ Row row) {                                     \
    few<SCALES, 1, true, false>(p, parts, shift, row, Gates());                                                                                                       \
  }                                                                                                                                                                      \
  extern "C" __global__ void __launch_bounds__(256, 2)                                                                                                                   \
      GATED_NAME(const __grid_constant__ Product p, const __grid_constant__ Parts parts, int shift, const __grid_constant__ Row row, const __grid_constant__ Gates gates) { \
    few<SCALES, 1, true, true>(p, parts, shift, row, gates);                                                                                                          \
  }
