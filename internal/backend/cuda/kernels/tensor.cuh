// Tensor cores and asynchronous copies, for products of weights in their layout (Weight.laid).
#pragma once
#include "product.cuh"

// The sums of mma begin at MAGIC: as bits of a float they are 12582912 plus the sum, exactly, as
// long as its magnitude is below 2^22. So it is for 128 codes of 8 bits.
#define MAGIC 0x4b400000

__device__ __forceinline__ float sumOf(int d) { return __fsub_rn(__int_as_float(d), 12582912.0f); }

// The scales of the codes of a block. There is a scale and a bias for each output, of bf16 or float32 (WIDE). Or codes have zero
// points. A word then has the first 24 bits of a scale as float32, which are all that a bf16 or a half has, and the zero point
// (ZEROED). Scales of float32 have the addend of a code beside them (ZEROED_WIDE). Or codes stand for signed bytes, and
// a block of 64 columns is two groups of 32 or four of 16, each with a scale. SYMMETRIC codes are less eight, or the bytes
// themselves, and scales are halves. Others have 4 bits and are looked up in a table (tabled), with scales of bf16 (MX), bytes
// of E4M3 (NV) or halves (NL).
enum { BRIEF, WIDE, ZEROED, ZEROED_WIDE, SYMMETRIC, MX, NV, NL };

// groupsIn is how many groups a block has, and lists how many numbers readScales has for two outputs.
template <int SCALES> constexpr int groupsIn = SCALES == NV ? 4 : SCALES < SYMMETRIC ? 1 : 2;
template <int SCALES> constexpr int lists = SCALES == NV ? 8 : 4;
template <int SCALES> constexpr bool tabled = SCALES > SYMMETRIC;

// Tails is a lane's part of the tails of two rows: scale and scaled sum of each, or the scales of all groups.
template <int SCALES> struct Tails {
  float of[2][lists<SCALES> / 2];
};

template <int SCALES> constexpr bool zeroed = SCALES == ZEROED || SCALES == ZEROED_WIDE;

// weighed is the sum of a row's group times the row's scale: of codes less their zero point, where they have one. Total is
// the sum of the row's codes.
template <int SCALES> __device__ __forceinline__ float weighed(int d, float scale, float total, float zero) {
  return __fmul_rn(zeroed<SCALES> ? __fmaf_rn(zero, total, sumOf(d)) : sumOf(d), scale);
}

// linked is an accumulator and the next group of its chain.
template <int SCALES> __device__ __forceinline__ float linked(float acc, float x, float scale, float bias, float total) {
  acc = __fmaf_rn(x, scale, acc);
  return zeroed<SCALES> ? acc : __fmaf_rn(bias, total, acc);
}

// added is both: number j of the result of multiply, with the tails of two rows and the scales of readScales.
template <int SCALES> __device__ __forceinline__ float added(float acc, int d, const Tails<SCALES>& t, const float (&s)[4], int j) {
  const float total = t.of[j & 1][1];
  return linked<SCALES>(acc, weighed<SCALES>(d, t.of[j & 1][0], total, s[j / 2 * 2 + 1]), s[j / 2 * 2], s[j / 2 * 2 + 1], total);
}

// Symmetric codes of 4 bits are multiplied as the high halves of bytes. Their sums, sixteen times
// too large, begin at the bits of a float whose last bit counts a sixteenth.
template <int BITS, int SCALES> constexpr int signedMagic = BITS == 4 && SCALES == SYMMETRIC ? 0x49400000 : MAGIC;

template <int BITS, int SCALES> __device__ __forceinline__ float signedSum(int d) {
  return __fsub_rn(__int_as_float(d), BITS == 4 && SCALES == SYMMETRIC ? 786432.0f : 12582912.0f);
}

__device__ __forceinline__ void copy16(word to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void arrived() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Codes are the codes of 16 outputs and a group of columns as left operands of mma.
template <int GROUP> struct Codes {
  word a[GROUP / 32][4];
};

// unpack reads a lane's codes of a block.
template <int BITS, int GROUP> __device__ __forceinline__ void unpack(Codes<GROUP>& c, const byte* block, int lane) {
  const word m = 0x0f0f0f0f;
  if constexpr (BITS == 8) {
#pragma unroll
    for (int i = 0; i < GROUP / 32; i++) {
      const uint4 w = ((const uint4*)block)[32 * i + lane];
      c.a[i][0] = w.x, c.a[i][1] = w.y, c.a[i][2] = w.z, c.a[i][3] = w.w;
    }
  } else if constexpr (GROUP == 32) {
    const uint2 w = ((const uint2*)block)[lane];
    c.a[0][0] = w.x & m, c.a[0][1] = w.y & m, c.a[0][2] = w.x >> 4 & m, c.a[0][3] = w.y >> 4 & m;
  } else {
#pragma unroll
    for (int i = 0; i < GROUP / 64; i++) {
      const uint4 w = ((const uint4*)block)[32 * i + lane];
      c.a[2 * i][0] = w.x & m, c.a[2 * i][1] = w.y & m, c.a[2 * i][2] = w.x >> 4 & m, c.a[2 * i][3] = w.y >> 4 & m;
      c.a[2 * i + 1][0] = w.z & m, c.a[2 * i + 1][1] = w.w & m, c.a[2 * i + 1][2] = w.z >> 4 & m, c.a[2 * i + 1][3] = w.w >> 4 & m;
    }
  }
}

// Acts are the codes of eight rows and a group of columns as right operands: lane 4r+q has
// GROUP/4 columns of row r, from GROUP/4*q on.
template <int GROUP> struct Acts {
  word b[GROUP / 16];
};

template <int GROUP> __device__ __forceinline__ void loadActs(Acts<GROUP>& a, const signed char* p) {
  if constexpr (GROUP == 32) {
    const uint2 v = *(const uint2*)p;
    a.b[0] = v.x, a.b[1] = v.y;
  } else {
#pragma unroll
    for (int i = 0; i < GROUP / 64; i++) {
      const uint4 v = ((const uint4*)p)[i];
      a.b[4 * i] = v.x, a.b[4 * i + 1] = v.y, a.b[4 * i + 2] = v.z, a.b[4 * i + 3] = v.w;
    }
  }
}

// multiply leaves MAGIC plus the sums: d[0] and d[1] of output lane/4 and rows 2*(lane%4) and one
// more, d[2] and d[3] of the output eight further.
template <int GROUP> __device__ __forceinline__ void multiply(int (&d)[4], const Codes<GROUP>& c, const Acts<GROUP>& a) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(c.a[0][0]), "r"(c.a[0][1]), "r"(c.a[0][2]), "r"(c.a[0][3]), "r"(a.b[0]), "r"(a.b[1]), "r"(MAGIC));
#pragma unroll
  for (int i = 1; i < GROUP / 32; i++)
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(c.a[i][0]), "r"(c.a[i][1]), "r"(c.a[i][2]), "r"(c.a[i][3]), "r"(a.b[2 * i]), "r"(a.b[2 * i + 1]));
}

template <int BITS, int GROUP, int SCALES> constexpr int blockBytes() {
  static_assert(SCALES < SYMMETRIC || GROUP == 64);
  return GROUP * 2 * BITS + (SCALES == WIDE || SCALES == ZEROED_WIDE ? 128 : 64);
}

// nanoScale is scale i of four that a word has as E4M3, none of them negative or NaN. by is 2^119 times the factor of the
// matrix: as bits of a float a byte, shifted to the place of its digits, is its value times 2^-120, and half of that
// is used, because codes count halves.
__device__ __forceinline__ float nanoScale(word bytes, int i, float by) {
  return __fmul_rn(__uint_as_float((i == 3 ? bytes >> 4 : bytes << (20 - 8 * i)) & 0x07f00000), by);
}

// scalesOf is the scale and the bias, or zero point, of an output in a word, or its scales in the groups of a block.
template <int SCALES> __device__ __forceinline__ void scalesOf(float* s, word w, float by) {
  if constexpr (SCALES == NV) {
#pragma unroll
    for (int i = 0; i < 4; i++) s[i] = nanoScale(w, i, by);
  } else if constexpr (SCALES == ZEROED) {
    s[0] = scaleIn(w), s[1] = zeroIn(w);
  } else if constexpr (SCALES == BRIEF || SCALES == MX) {
    s[0] = __uint_as_float(w << 16), s[1] = __uint_as_float(w & 0xffff0000u);
  } else {
    s[0] = half16(w), s[1] = half16(w >> 16);
  }
}

// factorOf is the factor for nanoScale from the tile: it is behind the blocks.
template <int BLOCK, int SCALES> __device__ __forceinline__ float factorOf(const byte* tile, int blocks) {
  return SCALES == NV ? *(const float*)(tile + blocks * BLOCK) : 0.0f;
}

// readScales reads the scale and the bias of output lane/4, and those of the output eight further; or the scales of all
// groups of the one, and of the other.
template <int SCALES> __device__ __forceinline__ void readScales(float (&s)[lists<SCALES>], const byte* scales, int lane, float by) {
  if constexpr (SCALES == WIDE || SCALES == ZEROED_WIDE) {
    const float4 v = ((const float4*)scales)[lane / 4];
    s[0] = v.x, s[1] = v.y, s[2] = v.z, s[3] = v.w;
  } else {
    const uint2 v = ((const uint2*)scales)[lane / 4];
    scalesOf<SCALES>(s, v.x, by);
    scalesOf<SCALES>(s + lists<SCALES> / 2, v.y, by);
  }
}

// select is prmt: a selector whose fourth bit is one gives eight times the highest bit of the byte.
__device__ __forceinline__ word select(word low, word high, word by) {
  word v;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(low), "r"(high), "r"(by));
  return v;
}

// lookUp is the values of eight codes of a word: bytes of two tables, by the low three bits of a code; the fourth selects the table.
template <int SCALES> __device__ __forceinline__ void lookUp(word& first, word& second, word w) {
  constexpr word A = SCALES == NL ? 0xbfad9881 : 0x03020100, B = SCALES == NL ? 0xf6eaddcf : 0x0c080604;  // fourth bit zero
  constexpr word C = SCALES == NL ? 0x26190d01 : 0xfdfeff00, D = SCALES == NL ? 0x71594535 : 0xf4f8fafc;
  const word low = w & 0x77777777, high = low >> 16, up = w << 4, m = select(up, w, 0xd9c8), n = select(up, w, 0xfbea);
  first = (select(A, B, low) & ~m) | (select(C, D, low) & m);
  second = (select(A, B, high) & ~n) | (select(C, D, high) & n);
}

// keep is v as something that the compiler cannot compute again where it is used.
__device__ __forceinline__ word keep(word v) { return __shfl_sync(~0u, v, threadIdx.x & 31); }

// onesOf is -1 for a weight, which the compiler does not know.
__device__ __forceinline__ word onesOf(const Weight& w) { return w.tiles > 0 ? ~0u : 0; }

// lookUpParts is lookUp in fewer instructions: the value of a code is the sum of two bytes. If the fourth bit is not the
// table's, select gives 0 or -1, and the other table has one more. The second table is reversed, for inverted codes. With
// MULTIPLY, which needs onesOf, a multiplication inverts: the units that select and shift have half its speed, and are busier.
template <int SCALES, bool MULTIPLY> __device__ __forceinline__ void lookUpParts(word (&first)[2], word (&second)[2], word w, word ones) {
  constexpr word A = SCALES == NL ? 0xbfad9881 : 0x04030200, B = SCALES == NL ? 0xf6eaddcf : 0x0d090705;
  constexpr word C = SCALES == NL ? 0x36465a72 : 0xfcfaf8f4, D = SCALES == NL ? 0x020e1a27 : 0x00fffefd;
  const word high = w >> 16;
  first[0] = select(A, B, w), first[1] = select(C, D, MULTIPLY ? w * ones + ones : ~w);
  second[0] = select(A, B, high), second[1] = select(C, D, MULTIPLY ? high * ones + ones : ~w >> 16);
}

// unpackSigned reads a lane's codes of a block of several groups, symmetric ones of 4 bits times sixteen. For two groups
// it has the operands one after the other; for four, the first two words of each operand are one group.
template <int BITS, int SCALES> __device__ __forceinline__ void unpackSigned(Codes<64>& c, const byte* block, int lane) {
  if constexpr (BITS == 8) {
    unpack<8, 64>(c, block, lane);
  } else {
    const uint4 w = ((const uint4*)block)[lane];
    if constexpr (tabled<SCALES>) {
      lookUp<SCALES>(c.a[0][0], c.a[0][2], w.x), lookUp<SCALES>(c.a[0][1], c.a[0][3], w.y);
      lookUp<SCALES>(c.a[1][0], c.a[1][2], w.z), lookUp<SCALES>(c.a[1][1], c.a[1][3], w.w);
    } else {
      const word m = 0xf0f0f0f0;
      c.a[0][0] = w.x << 4 & m, c.a[0][1] = w.y << 4 & m, c.a[0][2] = w.x & m, c.a[0][3] = w.y & m;
      c.a[1][0] = w.z << 4 & m, c.a[1][1] = w.w << 4 & m, c.a[1][2] = w.z & m, c.a[1][3] = w.w & m;
    }
  }
}

// multiplySigned leaves the sums of all groups, each as multiply does.
template <int BITS, int SCALES> __device__ __forceinline__ void multiplySigned(int (&d)[groupsIn<SCALES>][4], const Codes<64>& c, const Acts<64>& a) {
#pragma unroll
  for (int h = 0; h < groupsIn<SCALES>; h++)
    if constexpr (SCALES == NV)
      asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5},{%6},{%7,%7,%7,%7};"
          : "=r"(d[h][0]), "=r"(d[h][1]), "=r"(d[h][2]), "=r"(d[h][3]) : "r"(c.a[h / 2][h % 2 * 2]), "r"(c.a[h / 2][h % 2 * 2 + 1]), "r"(a.b[h]), "r"(MAGIC));
    else
      asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
          : "=r"(d[h][0]), "=r"(d[h][1]), "=r"(d[h][2]), "=r"(d[h][3])
          : "r"(c.a[h][0]), "r"(c.a[h][1]), "r"(c.a[h][2]), "r"(c.a[h][3]), "r"(a.b[2 * h]), "r"(a.b[2 * h + 1]), "r"(signedMagic<BITS, SCALES>));
}

// For many rows, codes of nvfp4 are multiplied as halves: the sums of mma begin at zero then, and are floats. A code that is
// shifted to the place of its digits is 2^-14 times its value. Rows have 2^9 times their codes and 2^6 times their scales
// (see halve in plain.cu), none of which is too large. All of these are exact, and so are the sums, in any order.
template <int SCALES> constexpr bool halved = SCALES == NV;

const int halvedBlock = 1024 + 128;  // bytes of eight rows in 64 columns: operands of mma, then scales

// widen is eight codes of a word as halves, of which only the first bytes are not zero: the first two of four columns, then the
// other two, and then those of the next group.
__device__ __forceinline__ void widen(word& a, word& b, word& c, word& d, word w) {
  const word low = w & 0x77777777, up = w << 4;
  const word first = select(0x06040200, 0x0e0c0a08, low) | (select(up, w, 0xd9c8) & 0x80808080);
  const word second = select(0x06040200, 0x0e0c0a08, low >> 16) | (select(up, w, 0xfbea) & 0x80808080);
  a = select(first, 0, 0x1404), b = select(first, 0, 0x3424), c = select(second, 0, 0x1404), d = select(second, 0, 0x3424);
}

// widenBlock reads a lane's codes of a block as left operands, one for each group.
__device__ __forceinline__ void widenBlock(word (&a)[4][4], const byte* block, int lane) {
  const uint4 w = ((const uint4*)block)[lane];
  widen(a[0][0], a[0][2], a[1][0], a[1][2], w.x), widen(a[0][1], a[0][3], a[1][1], a[1][3], w.y);
  widen(a[2][0], a[2][2], a[3][0], a[3][2], w.z), widen(a[2][1], a[2][3], a[3][1], a[3][3], w.w);
}

// shareScales is readScales of nvfp4 in fewer instructions: each of four lanes decodes the scales of one group for all of them.
__device__ __forceinline__ void shareScales(float (&s)[8], const byte* scales, int lane, float by) {
  const uint2 v = ((const uint2*)scales)[lane / 4];
  const word own = 0x4440 | (lane & 3);
  const float first = __fmul_rn(__uint_as_float(select(v.x, 0, own) << 20), by), second = __fmul_rn(__uint_as_float(select(v.y, 0, own) << 20), by);
#pragma unroll
  for (int h = 0; h < 4; h++) s[h] = __shfl_sync(~0u, first, h, 4), s[4 + h] = __shfl_sync(~0u, second, h, 4);
}

// addHalves is addGroups for halves. B has a lane's columns of the groups.
template <int SCALES> __device__ __forceinline__ void addHalves(float (&acc)[4], const word (&a)[4][4], const word (&b)[8], const Tails<SCALES>& t, const float (&s)[lists<SCALES>]) {
#pragma unroll
  for (int h = 0; h < 4; h++) {
    float d[4];
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[h][0]), "r"(a[h][1]), "r"(a[h][2]), "r"(a[h][3]), "r"(b[2 * h]), "r"(b[2 * h + 1]), "f"(0.0f));
#pragma unroll
    for (int j = 0; j < 4; j++) acc[j] = __fmaf_rn(__fmul_rn(d[j], t.of[j & 1][h]), s[j / 2 * 4 + h], acc[j]);
  }
}

// addGroups adds the products of all groups, with the scales of outputs as readScales leaves them.
template <int BITS, int SCALES> __device__ __forceinline__ void addGroups(float (&acc)[4], const Codes<64>& c, const Acts<64>& a, const Tails<SCALES>& t, const float (&s)[lists<SCALES>]) {
  constexpr int H = groupsIn<SCALES>;
  int d[H][4];
  multiplySigned<BITS, SCALES>(d, c, a);
#pragma unroll
  for (int h = 0; h < H; h++)
#pragma unroll
    for (int j = 0; j < 4; j++) acc[j] = __fmaf_rn(__fmul_rn(signedSum<BITS, SCALES>(d[h][j]), t.of[j & 1][h]), s[j / 2 * H + h], acc[j]);
}

// addParts is addGroups for table codes of a block in memory: for one strip of rows, fewer instructions.
template <int SCALES> __device__ __forceinline__ void addParts(float (&acc)[4], const byte* block, int lane, const Acts<64>& a, const Tails<SCALES>& t, const float (&s)[lists<SCALES>], word ones) {
  constexpr int H = groupsIn<SCALES>;
  const uint4 w = ((const uint4*)block)[lane];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    word c[4][2];
    lookUpParts<SCALES, true>(c[0], c[2], i ? w.z : w.x, ones), lookUpParts<SCALES, true>(c[1], c[3], i ? w.w : w.y, ones);
#pragma unroll
    for (int k = 0; k < H / 2; k++) {
      int d[4] = {MAGIC, MAGIC, MAGIC, MAGIC};
#pragma unroll
      for (int j = 0; j < 2; j++)
        if constexpr (H == 4)
          asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
              : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(c[2 * k][j]), "r"(c[2 * k + 1][j]), "r"(a.b[2 * i + k]));
        else
          asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
              : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
              : "r"(c[0][j]), "r"(c[1][j]), "r"(c[2][j]), "r"(c[3][j]), "r"(a.b[2 * i]), "r"(a.b[2 * i + 1]));
      const int h = H / 2 * i + k;
#pragma unroll
      for (int j = 0; j < 4; j++) acc[j] = __fmaf_rn(__fmul_rn(sumOf(d[j]), t.of[j & 1][h]), s[j / 2 * H + h], acc[j]);
    }
  }
}

// readTails reads those of rows 2*quad and one more, which are adjacent.
template <int SCALES> __device__ __forceinline__ void readTails(Tails<SCALES>& t, const void* at, int quad) {
#pragma unroll
  for (int i = 0; i < lists<SCALES> / 4; i++) *(float4*)&t.of[i][0] = ((const float4*)at)[quad * (lists<SCALES> / 4) + i];
}

// loadGroups reads a lane's columns of a block, whose groups are half a block apart or, if there are four, at
// placeOf.
template <int SCALES> __device__ __forceinline__ void loadGroups(Acts<64>& a, const signed char* row, int quad) {
  if constexpr (SCALES == NV) {
    loadActs<64>(a, row + 16 * quad);
  } else {
    const uint2 v = *(const uint2*)(row + 8 * quad), w = *(const uint2*)(row + 32 + 8 * quad);
    a.b[0] = v.x, a.b[1] = v.y, a.b[2] = w.x, a.b[3] = w.y;
  }
}

// copyGroups copies 16 columns of a block: piece i of a row of 64, so that loadActs reads a lane's columns at once.
template <int SCALES> __device__ __forceinline__ void copyGroups(word row, int i, const signed char* from) {
  if constexpr (groupsIn<SCALES> == 2) {
    const word to = row + (i & 1) * 32 + (i >> 1) * 8;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to + 16), "l"(from + 8) : "memory");
  } else {
    copy16(row + i * 16, from);
  }
}

// copyScale copies the scale of a row's group.
__device__ __forceinline__ void copyScale(word to, const float2* tail) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(tail) : "memory");
}
