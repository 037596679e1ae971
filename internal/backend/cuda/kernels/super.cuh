// Products with superblocks of 256 columns by tensor cores: the K formats, IQ4_XS, TQ1_0 and TQ2_0 (TQ), and the grid formats
// with their codes written out (S8), in the device layout (super.go). The sums of its groups, multiplied with their factors, are
// added as integers; accumulators are updated once per superblock.
//
// A block of 16 outputs has, by groups of 32 columns, the lane order of mma: lane 4r+q has of outputs r and r+8
// columns 4q to 4q+3 of each half of a group. Rows of activations have the same order (quantizeSuper).
//
//	low bits  [pair of groups][lane][word of a group]: nibbles of bytes, the first half in the low ones; of IQ4_XS
//	          nibbles of 16 bits. Of Q2_K, Q3_K and TQ a word for each group, whose bytes have two bits of all four words.
//	          Of S8 [group][lane] the four words
//	high bits [pair of groups][lane], of Q6_K a word for each group: bytes have those of all words
//	factors   [output mod 8][output / 8][group]; and biases likewise, of Q2_K in the high halves of the bytes. TQ has none
//	scales    [output mod 8][output / 8] as halves, of S8 as floats; and those of biases
//
// The grid formats with signs have indices of a table instead, whose entries are four columns (IQ3) or eight (IQ2).
//
//	indices   [pair of groups][lane] a byte for each of the eight words; of IQ2 two lanes have the same
//	signs     [pair of groups][lane]: byte i has those of column i of the words
//	high bits of indices: IQ3_S [lane][pair], others [pair][two lanes]
//	factors   [output mod 8][output / 8] with a nibble for each group
#pragma once
#include "relay.cuh"

enum { Q4K, Q5K, Q6K, XS, Q2K, Q3K, TQ, S8, IQ3XXS, IQ3S, IQ2XXS, IQ2XS, IQ2S };

template <int FORM> struct Super {
  static constexpr bool BIASES = FORM == Q4K || FORM == Q5K;  // of groups of 32
  static constexpr bool GRID = FORM >= IQ3XXS;
  static constexpr int ENTRY = FORM == IQ3XXS || FORM == IQ3S ? 4 : 8, TOP = FORM == IQ3S || FORM == IQ2XS ? 1 : FORM == IQ2S ? 2 : 0;  // of indices: columns, bits above eight
  static constexpr int TABLE = GRID ? 256 * ENTRY / 4 << TOP : 0, SIGNS = 256 * ENTRY / 4 * (ENTRY == 4 ? 4 : 1);
  static constexpr bool SMALL = FORM == Q6K || FORM == Q2K || FORM == Q3K || FORM == S8 || FORM == IQ2XS || FORM == IQ2S;  // groups have 16 columns
  static constexpr bool TWOS = FORM == Q2K || FORM == Q3K || FORM == TQ;
  static constexpr int HIGH = GRID ? SIGNS + 512 : TWOS ? 1024 : FORM == S8 ? 4096 : 2048;
  static constexpr int FACTORS = HIGH + (FORM == Q5K || FORM == Q3K ? 512 : FORM == Q6K ? 1024 : FORM == IQ3S || FORM == IQ2S ? 128 : FORM == IQ2XS ? 64 : 0);
  static constexpr int LEAST = FACTORS + (SMALL ? 256 : FORM == TQ ? 0 : 128) / (GRID ? 2 : 1), SCALES = LEAST + (BIASES ? 128 : 0);
  static constexpr int PAIR = BIASES || FORM == Q2K || FORM == S8 ? 64 : 32, BLOCK = SCALES + PAIR;
  static constexpr float UNIT = FORM == Q6K ? 0.25f : FORM == Q3K ? 0.03125f : FORM == TQ ? 0.015625f : FORM == IQ3XXS ? 0.25f : FORM >= IQ2XXS ? 0.125f : 1.0f;  // of a code as unpackSuper leaves it
};

// more adds to sums.
__device__ __forceinline__ void more(int (&d)[4], const word (&a)[4], word b0, word b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <bool SIGNED> __device__ __forceinline__ void mma32(int (&d)[4], const word (&a)[4], word b0, word b1) {
  if constexpr (SIGNED)
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
  else
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
}

__device__ __forceinline__ void mma16(int (&d)[4], word a0, word a1, word b, int from) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5},{%6},{%7,%7,%7,%7};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a0), "r"(a1), "r"(b), "r"(from));
}

// levels is the values of four codes of IQ4_XS: nibbles without their highest bit, and which table that bit selects.
__device__ __forceinline__ word levels(word low, word which) {
  return __byte_perm(__byte_perm(0xbfad9881u, 0xf6eaddcfu, low), __byte_perm(0x26190d01u, 0x71594535u, low), which);
}

// unpackSuper is a lane's codes of a group, from the two words with their low bits and one with high bits: those of Q5_K
// and Q3_K from bit 4*(g%2) of a byte on. Signed codes of Q6_K, Q3_K and TQ become the high bits of bytes.
template <int FORM> __device__ __forceinline__ void unpackSuper(word (&a)[4], word x, word y, word h, int g) {
  const word m = 0x0f0f0f0f;
  if constexpr (FORM == XS) {
    const word w[2] = {x, y};
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const word low = w[i] & 0x77777777u, which = (w[i] & 0x88888888u) >> 1 | 0x32103210u;
      a[i] = levels(low, which), a[i + 2] = levels(low >> 16, which >> 16);
    }
  } else if constexpr (FORM == Q2K) {
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = x >> 2 * i & 0x03030303;
  } else if constexpr (FORM == TQ) {
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = x << (6 - 2 * i) & 0xc0c0c0c0;
  } else if constexpr (FORM == Q3K) {
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = (i < 3 ? x << (5 - 2 * i) : x >> 1) & 0x60606060 | (g ? h << (3 - i) : h << (7 - i)) & 0x80808080;
  } else if constexpr (FORM == Q6K) {
    const word f = 0x3c3c3c3c, top = 0xc0c0c0c0;
    a[0] = x << 2 & f | h << 6 & top, a[1] = y << 2 & f | h << 4 & top, a[2] = x >> 2 & f | h << 2 & top, a[3] = y >> 2 & f | h & top;
  } else {
    a[0] = x & m, a[1] = y & m, a[2] = x >> 4 & m, a[3] = y >> 4 & m;
    if constexpr (FORM == Q5K) {
      const word one = 0x10101010;
#pragma unroll
      for (int i = 0; i < 4; i++) a[i] |= (g ? h >> i : h << (4 - i)) & one;
    }
  }
}

// tableOf copies the table of a grid format to shared memory, with all threads of the block. Every kernel has its own, so that the
// memory is the kernel's and not the module's.
template <int FORM, int KERNEL> __device__ __forceinline__ const word* tableOf(const Weight& w) {
  if constexpr (Super<FORM>::GRID) {
    __shared__ word table[Super<FORM>::TABLE];
    for (int i = threadIdx.x; i < Super<FORM>::TABLE; i += blockDim.x) table[i] = ((const word*)w.table)[i];
    __syncthreads();
    return table;
  } else {
    return nullptr;
  }
}

// Pair is a lane's part of two groups: codes, and the factors of outputs lane/4 and the one eight further.
template <int FORM> struct Pair {
  word a[2][4], f[2];

  // look is read for a grid format.
  __device__ __forceinline__ void look(const byte* block, int i, int lane, const word* table) {
    typedef Super<FORM> F;
    const uint2 index = ((const uint2*)block)[F::ENTRY == 4 ? 32 * i + lane : 16 * i + lane / 2];
    const word signs = ((const word*)(block + F::SIGNS))[32 * i + lane];
    word high = 0;
    if constexpr (FORM == IQ3S) high = block[F::HIGH + 4 * lane + i];
    if constexpr (FORM == IQ2XS) high = block[F::HIGH + 16 * i + lane / 2];
    if constexpr (FORM == IQ2S) high = ((const unsigned short*)(block + F::HIGH))[16 * i + lane / 2];
#pragma unroll
    for (int n = 0; n < 8; n++) {
      word at = (n < 4 ? index.x : index.y) >> 8 * (n & 3) & 0xff;
      if constexpr (F::TOP > 0) at |= (high >> F::TOP * n & ((1 << F::TOP) - 1)) << 8;
      const word x = table[F::ENTRY == 4 ? at : 2 * at + (lane & 1)], minus = signs >> n & 0x01010101;
      a[n / 4][n & 3] = (x ^ 255 * minus) + minus;  // no number is zero
    }
#pragma unroll
    for (int o = 0; o < 2; o++) {
      const int output = 2 * (lane / 4) + o;
      f[o] = F::SMALL ? ((const unsigned short*)(block + F::FACTORS))[4 * output + i] : block[F::FACTORS + 4 * output + i];
    }
  }

  __device__ __forceinline__ void read(const byte* block, int i, int lane, const word* table) {
    if constexpr (Super<FORM>::GRID) {
      look(block, i, lane, table);
      return;
    } else if constexpr (FORM == S8) {
#pragma unroll
      for (int g = 0; g < 2; g++) {
        const uint4 v = ((const uint4*)block)[32 * (2 * i + g) + lane];
        a[g][0] = v.x, a[g][1] = v.y, a[g][2] = v.z, a[g][3] = v.w;
      }
    } else if constexpr (Super<FORM>::TWOS) {
      const uint2 v = ((const uint2*)block)[32 * i + lane];
      const word h = FORM == Q3K ? ((const word*)(block + Super<FORM>::HIGH))[32 * i + lane] : 0;
      unpackSuper<FORM>(a[0], v.x, 0, h, 0), unpackSuper<FORM>(a[1], v.y, 0, h, 1);
    } else {
      const uint4 v = ((const uint4*)block)[32 * i + lane];
      uint2 h = make_uint2(0, 0);
      if constexpr (FORM == Q5K) h.x = h.y = ((const word*)(block + Super<FORM>::HIGH))[32 * i + lane];
      if constexpr (FORM == Q6K) h = ((const uint2*)(block + Super<FORM>::HIGH))[32 * i + lane];
      unpackSuper<FORM>(a[0], v.x, v.y, h.x, 0), unpackSuper<FORM>(a[1], v.z, v.w, h.y, 1);
    }
    if constexpr (FORM == TQ) return;
    const byte* factors = block + Super<FORM>::FACTORS;
#pragma unroll
    for (int o = 0; o < 2; o++) {
      if constexpr (Super<FORM>::SMALL)
        f[o] = ((const word*)factors)[4 * (2 * (lane / 4) + o) + i];
      else
        f[o] = ((const unsigned short*)factors)[4 * (2 * (lane / 4) + o) + i];
    }
  }

  // factor is that of group i of 16 or 32 columns, and least that of its bias, of Q2_K, in all bytes.
  __device__ __forceinline__ int factor(int o, int i) const { return Super<FORM>::GRID ? 2 * (f[o] >> 4 * i & 15) + 1 : FORM == Q2K ? f[o] >> 8 * i & 15 : (signed char)(f[o] >> 8 * i); }
  __device__ __forceinline__ word least(int o, int i) const { return __byte_perm(f[o] >> 4 & 0x0f0f0f0f, 0, 0x1111 * i); }

  // multiply adds to sums the products with eight rows, and for Q2_K to low those of the biases.
  __device__ __forceinline__ void multiply(int (&sum)[4], int (&low)[4], const uint4& b) const {
    int d[4];
#pragma unroll
    for (int g = 0; g < 2; g++) {
      const word b0 = g ? b.z : b.x, b1 = g ? b.w : b.y;
      if constexpr (FORM == Q2K) {
        const word t[4] = {least(0, 2 * g), least(1, 2 * g), least(0, 2 * g + 1), least(1, 2 * g + 1)};
        more(low, t, b0, b1);
      }
      if constexpr (FORM == TQ) {
        more(sum, a[g], b0, b1);
      } else if constexpr (Super<FORM>::SMALL) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          mma16(d, a[g][2 * h], a[g][2 * h + 1], h ? b1 : b0, 0);
#pragma unroll
          for (int j = 0; j < 4; j++) sum[j] += factor(j / 2, 2 * g + h) * d[j];
        }
      } else {
        mma32<FORM == XS || Super<FORM>::GRID>(d, a[g], b0, b1);
#pragma unroll
        for (int j = 0; j < 4; j++) sum[j] += factor(j / 2, g) * d[j];
      }
    }
  }
};

// Closing turns the sums of a superblock into numbers.
template <int FORM> struct Closing {
  float scale[2], bias[2];
  word least[2];

  // factors reads those of the biases of all groups.
  __device__ __forceinline__ void factors(const byte* block, int lane) {
    if constexpr (Super<FORM>::BIASES) {
      const word* p = (const word*)(block + Super<FORM>::LEAST) + 4 * (lane / 4) + (lane & 1);
      least[0] = p[0], least[1] = p[2];
    }
  }
  __device__ __forceinline__ void scales(const byte* block, int lane) {
    const byte* pair = block + Super<FORM>::SCALES;
    if constexpr (FORM == S8) {
      const float2 d = ((const float2*)pair)[lane / 4];
      scale[0] = d.x, scale[1] = d.y;
      return;
    }
    const word d = ((const word*)pair)[lane / 4];
    scale[0] = half16(d & 0xffff), scale[1] = half16(d >> 16);
    if constexpr (Super<FORM>::UNIT != 1.0f) scale[0] = __fmul_rn(scale[0], Super<FORM>::UNIT), scale[1] = __fmul_rn(scale[1], Super<FORM>::UNIT);
    if constexpr (Super<FORM>::BIASES || FORM == Q2K) {
      const word m = ((const word*)pair)[8 + lane / 4];
      bias[0] = -half16(m & 0xffff), bias[1] = -half16(m >> 16);
    }
  }
  // close is the sums of a superblock as numbers. Digits are those of the sums of rows, the low ones in the first two
  // lanes of four.
  __device__ __forceinline__ void close(float (&x)[4], const int (&sum)[4], const int (&less)[4], word digits, int lane) const {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      x[j] = __fmul_rn((float)sum[j], scale[j / 2]);
      if constexpr (FORM == Q2K) x[j] = __fmaf_rn((float)less[j], bias[j / 2], x[j]);
    }
    if constexpr (Super<FORM>::BIASES) {
      const bool low = (lane & 2) == 0;
      int l[4], h[4];
      mma16(l, low ? least[0] : 0, low ? least[1] : 0, digits, MAGIC);
      mma16(h, low ? 0 : least[0], low ? 0 : least[1], digits, 0);
#pragma unroll
      for (int j = 0; j < 4; j++) x[j] = __fmaf_rn(sumOf(l[j] + 128 * h[j]), bias[j / 2], x[j]);
    }
  }
};

// relaySuper is relay: a chunk is a block.
template <int FORM, int NB, int S> __device__ __forceinline__ void relaySuper(const Product& p, const Parts& parts, int shift) {
  typedef Super<FORM> F;
  constexpr int BLOCK = F::BLOCK;
  constexpr bool AHEAD = NB == 1;  // registers have space for all rows of the next block
  extern __shared__ __align__(16) byte ring[];
  __shared__ float4 baton[8][NB][32];
  release();
  const word* table = tableOf<FORM, NB>(p.w);
  Walk<BLOCK, 1> w(p, parts, shift);
  Chunks& now = w.now;
  const int lane = w.lane, warp = w.warp, size = w.size, next = w.next, tailRows = p.tailRows;
  const int take = keep(1 + warp), give = keep(1 + next);
  const word takeAt = keep((word)__cvta_generic_to_shared(&baton[warp][0][lane])), giveAt = keep((word)__cvta_generic_to_shared(&baton[next][0][lane]));
  if (p.jobs) await();
  w.begin(pieces(p, parts));
  const int total = w.total;
  byte* mine = ring + warp * S * BLOCK;
  const word into = (word)__cvta_generic_to_shared(mine) + lane * 16;
#pragma unroll 1
  for (int i = 0; i < S; i++) w.issue(into + i * BLOCK);
  if (!p.jobs) await();

  const signed char* rows[NB];
  const float2* tails;  // of rows 2q and 2q+1
  const word* digits;   // of row lane/4
  auto look = [&] {
    const int first = parts.same ? 0 : now.piece.first;
#pragma unroll
    for (int n = 0; n < NB; n++)
      rows[n] = p.codes + (long long)(first + min(n * 8 + lane / 4, now.piece.rows - 1)) * p.codeStride + now.k * 256 + (lane & 3) * 16;
    tails = p.tails + (long long)now.k * 3 * tailRows + first;
    digits = (const word*)(tails + (long long)(1 + (lane >> 1 & 1)) * tailRows + lane / 4) + (lane & 1);
    tails += 2 * (lane & 3);
  };
  uint4 acts[AHEAD ? 4 : NB];
  float4 tail[NB];
  word digit[NB];
  auto ahead = [&] {
    if constexpr (AHEAD)
#pragma unroll
      for (int i = 0; i < 4; i++) acts[i] = ((const uint4*)rows[0])[4 * i];
#pragma unroll
    for (int n = 0; n < NB; n++) {
      if (!AHEAD) acts[n] = *(const uint4*)rows[n];
      tail[n] = *(const float4*)(tails + n * 8);
      if (F::BIASES) digit[n] = digits[16 * n];
    }
  };
  if (now.item < total) look();
  int stage = 0;
  if (w.turn + 1 == size && w.team < total) {
#pragma unroll
    for (int n = 0; n < NB; n++) write4(giveAt + n * 512, 0, 0, 0, 0);
    if (size > 1) hand(give);
  }
  if (now.item < total) ahead();
  while (now.item < total) {
    arrived<S - 1>();
    __syncwarp();
    const byte* block = mine + stage * BLOCK;
    Closing<FORM> c;
    c.factors(block, lane), c.scales(block, lane);
    int sum[NB][4], less[NB][4];
#pragma unroll
    for (int n = 0; n < NB; n++)
#pragma unroll
      for (int j = 0; j < 4; j++) sum[n][j] = less[n][j] = 0;
#pragma unroll(AHEAD ? 4 : 1)
    for (int i = 0; i < 4; i++) {
      Pair<FORM> two;
      two.read(block, i, lane, table);
#pragma unroll
      for (int n = 0; n < NB; n++) {
        const uint4 b = acts[AHEAD ? i : n];
        if (!AHEAD && i < 3) acts[n] = ((const uint4*)rows[n])[4 * i + 4];
        two.multiply(sum[n], less[n], b);
      }
    }
    float x[NB][4], by[NB][2];
#pragma unroll
    for (int n = 0; n < NB; n++) c.close(x[n], sum[n], less[n], digit[n], lane), by[n][0] = tail[n].x, by[n][1] = tail[n].z;
    __syncwarp();
    w.issue(into + stage * BLOCK);
    stage = stage + 1 == S ? 0 : stage + 1;
    const Chunks was = now;
    if (!w.step(now)) {
#pragma unroll
      for (int n = 0; n < NB; n++) rows[n] += 256 << shift;
      tails += (long long)(3 << shift) * tailRows, digits += 2ll * (3 << shift) * tailRows;
    } else if (now.item < total) {
      look();
    }
    if (now.item < total) ahead();
    const bool last = was.k == w.chunks - 1;

    // The other warps of the team wait from here to hand.
    if (size > 1) meet(take);
    float acc[NB][4];
#pragma unroll
    for (int n = 0; n < NB; n++) read4(acc[n], takeAt + n * 512);
#pragma unroll
    for (int n = 0; n < NB; n++)
#pragma unroll
      for (int j = 0; j < 4; j++) acc[n][j] = __fmaf_rn(x[n][j], by[n][j & 1], acc[n][j]);
#pragma unroll
    for (int n = 0; n < NB; n++) write4(giveAt + n * 512, last ? 0.0f : acc[n][0], last ? 0.0f : acc[n][1], last ? 0.0f : acc[n][2], last ? 0.0f : acc[n][3]);
    if (size > 1 && (!last || was.item + w.teams < total)) hand(give);
    if (last) {
      int tile = was.piece.tile;
      const Part& part = partOf(parts, tile);
      const int out = tile * 16 + lane / 4;
      const bool bias = part.bias, add = part.add;
#pragma unroll
      for (int o = 0; o < 2; o++) {
        if (out + 8 * o >= part.rows) break;
        const float more = bias ? part.bias[out + 8 * o] : 0.0f;
        float* y = part.dst + (long long)(was.piece.first + 2 * (lane & 3)) * part.dstStride + out + 8 * o;
#pragma unroll
        for (int r = 0; r < 2 * NB; r++) {
          float v = acc[r / 2][2 * o + r % 2];
          if (r / 2 * 8 + 2 * (lane & 3) + r % 2 < was.piece.rows) {
            float* at = y + (long long)(r / 2 * 8 + r % 2) * part.dstStride;
            if (add) v = __fadd_rn(*at, v);
            *at = bias ? __fadd_rn(v, more) : v;
          }
        }
      }
    }
  }
}

// manySuper is many: a block has 32*ACROSS outputs, two tiles of each warp, and 8*STRIPS rows of each of DOWN.
template <int FORM, int ACROSS, int DOWN, int STRIPS, int S> __device__ __forceinline__ void manySuper(const Product& p) {
  typedef Super<FORM> F;
  constexpr int ROWS = 8 * STRIPS * DOWN, TILES = 2 * ACROSS, THREADS = 32 * ACROSS * DOWN, VECTORS = F::BLOCK / 16;
  constexpr int ACTS = TILES * F::BLOCK, TAILS = ACTS + ROWS * 256, STAGE = TAILS + ROWS * 24;
  extern __shared__ __align__(16) byte stages[];
  release();
  const word* table = tableOf<FORM, 3>(p.w);
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % ACROSS, first = threadIdx.x / (32 * ACROSS) * 8 * STRIPS, odd = lane >> 2 & 1;
  const int tile0 = blockIdx.y * TILES, row0 = blockIdx.x * ROWS, blocks = p.w.groups;
  const word base = (word)__cvta_generic_to_shared(stages);
  // Data beyond the last tile or row is read from elsewhere, and the results are not used.
  auto weights = [&](word to, int k) {
#pragma unroll 1
    for (int t = 0; t < TILES; t++) {
      const byte* from = tileAt(p.w, 0, min(tile0 + t, p.w.tiles - 1)) + (long long)k * F::BLOCK;
#pragma unroll
      for (int i = 0; i < (VECTORS + THREADS - 1) / THREADS; i++) {
        const int v = threadIdx.x + i * THREADS;
        if (v < VECTORS) copy16(to + t * F::BLOCK + v * 16, from + v * 16);
      }
    }
  };
  const signed char* code = p.codes + (threadIdx.x & 15) * 16;
  auto rows = [&](word to, int k) {
#pragma unroll
    for (int i = 0; i < ROWS * 16 / THREADS; i++) {  // sixteen threads for a row; odd rows change places, for the banks
      const int r = threadIdx.x / 16 + THREADS / 16 * i;
      copy16(to + ACTS + r * 256 + ((threadIdx.x & 15) ^ (r & 1) << 2) * 16, code + (long long)min(row0 + r, p.rows - 1) * p.codeStride + k * 256);
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < 3 * ROWS / 2; i += THREADS)
      copy16(to + TAILS + i * 16, p.tails + (long long)(k * 3 + i / (ROWS / 2)) * p.tailRows + min(row0 + 2 * (i % (ROWS / 2)), p.tailRows - 2));
  };
#pragma unroll 1
  for (int k = 0; k < S - 1; k++)
    if (k < blocks) weights(base + k * STAGE, k);
  await();
#pragma unroll 1
  for (int k = 0; k < S - 1; k++) {
    if (k < blocks) rows(base + k * STAGE, k);
    commit();
  }
  int now = 0, ask = S - 1;  // stages
  float acc[2][STRIPS][4];
#pragma unroll
  for (int t = 0; t < 2; t++)
#pragma unroll
    for (int n = 0; n < STRIPS; n++)
#pragma unroll
      for (int j = 0; j < 4; j++) acc[t][n][j] = 0;
#pragma unroll 1
  for (int k = 0; k < blocks; k++) {
    arrived<S - 2>();
    __syncthreads();
    if (k + S - 1 < blocks) weights(base + ask * STAGE, k + S - 1), rows(base + ask * STAGE, k + S - 1);
    commit();
    const byte* stage = stages + now * STAGE;
    now = now + 1 == S ? 0 : now + 1, ask = ask + 1 == S ? 0 : ask + 1;
    const byte* block[2] = {stage + 2 * warp * F::BLOCK, stage + (2 * warp + 1) * F::BLOCK};
    const byte* row = stage + ACTS + (first + lane / 4) * 256 + (lane & 3) * 16;
    const float2* tails = (const float2*)(stage + TAILS);
    int sum[2][STRIPS][4], less[2][STRIPS][4];
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
      for (int n = 0; n < STRIPS; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[t][n][j] = less[t][n][j] = 0;
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
      Pair<FORM> two[2];
      two[0].read(block[0], i, lane, table), two[1].read(block[1], i, lane, table);
#pragma unroll
      for (int n = 0; n < STRIPS; n++) {
        const uint4 b = *(const uint4*)(row + n * 2048 + 64 * (i ^ odd));
        two[0].multiply(sum[0][n], less[0][n], b), two[1].multiply(sum[1][n], less[1][n], b);
      }
    }
    const word* digits = (const word*)(tails + (1 + (lane >> 1 & 1)) * ROWS + first + lane / 4) + (lane & 1);
#pragma unroll
    for (int t = 0; t < 2; t++) {
      Closing<FORM> c;
      c.factors(block[t], lane), c.scales(block[t], lane);
#pragma unroll
      for (int n = 0; n < STRIPS; n++) {
        const float4 s = *(const float4*)(tails + first + n * 8 + 2 * (lane & 3));
        float x[4];
        c.close(x, sum[t][n], less[t][n], F::BIASES ? digits[16 * n] : 0, lane);
#pragma unroll
        for (int j = 0; j < 4; j++) acc[t][n][j] = __fmaf_rn(x[j], j & 1 ? s.z : s.x, acc[t][n][j]);
      }
    }
  }
  // Results go through shared memory, one tile of each warp at a time: rows are written whole.
  constexpr int OUTS = 16 * ACROSS, PITCH = OUTS + 4;
  float* out = (float*)stages;
  arrived<0>();
#pragma unroll
  for (int t = 0; t < 2; t++) {
    __syncthreads();
#pragma unroll
    for (int n = 0; n < STRIPS; n++)
#pragma unroll
      for (int j = 0; j < 4; j++) out[(first + n * 8 + (lane & 3) * 2 + (j & 1)) * PITCH + warp * 16 + lane / 4 + (j >> 1) * 8] = acc[t][n][j];
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * OUTS; i += THREADS) {
      const int r = row0 + i / OUTS, c = i % OUTS, tile = tile0 + c / 16 * 2 + t;
      if (r < p.rows) put(p, r, tile * 16 + c % 16, out[i / OUTS * PITCH + c]);
    }
  }
}
