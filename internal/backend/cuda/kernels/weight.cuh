// Packed weights: the blocks of the CPU backend (internal/backend/cpu/kernel, Weight), and the decoding of
// their numbers. In weights for tensor cores (laid) the words of a block
// have another order; see place and scaleOf.
#pragma once
#include "bits.cuh"

// Weight is a stack of matrices. weight.go fills it in.
struct Weight {  // shared with Go
  const unsigned char* data;
  long long matrix;  // bytes of one
  int rows, cols, tiles, tileBytes;
  int group, groups;     // columns of a block, blocks of a tile
  int codes, block;      // bytes of a block's codes, and of a block
  int per, tail;         // blocks of a superblock, or 1; bytes after them
  int kind, bits;        // how codes become numbers; of a code
  int number, factors;   // type of scales or plain numbers; of the tail
  float zero;            // biases, in multiples of the scales
  int laid;              // words lie for tensor cores, SUPER: as super.cuh says, TABLED: as lookUp of tensor.cuh reads them
  int zeros, grid;       // where the zero points of a block begin, a byte each; if it is laid: they lie with the scales; 0: there are none.
                         // Of a grid format in its own bits: columns of an entry, more bits of indices times 16, and 256 if groups have 16 columns
  const unsigned char* table;  // of that format
};

enum { BIASED, HALVES, LEVELED, BYTES, PLAIN, POINTED };
enum { NO_FACTORS, FACTORS_K, FACTORS_6K, FACTORS_XS, FACTORS_2K, FACTORS_GRID };
enum { BF16, F16, F32, E4M3 };
enum { SUPER = 2, TABLED };

typedef unsigned char byte;
typedef unsigned int word;

__device__ __forceinline__ float half16(unsigned short h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}

// floatAt is number i of a list of type.
__device__ __forceinline__ float floatAt(const byte* p, int type, int i) {
  if (type == F32) return ((const float*)p)[i];
  unsigned short h = ((const unsigned short*)p)[i];
  return type == F16 ? half16(h) : __uint_as_float((word)h << 16);
}

// scaleIn and zeroIn are the parts of a word that has a zero point beside its scale: see tensor.cuh. zeroIn is the
// addend of a code.
__device__ __forceinline__ float scaleIn(word w) { return __uint_as_float(w & 0xffffff00u); }
__device__ __forceinline__ float zeroIn(word w) { return __fsub_rn(8388608.0f, __uint_as_float(w & 0xff | 0x4b000000u)); }

// e4m3 is the number of a byte.
__device__ __forceinline__ float e4m3(byte b) {
  word u = (word)(b & 0x7f) << 20;
  if ((b & 0x7f) == 0x7f)
    u = 0x7fc00000;
  else if (u < 0x00800000)
    u = __float_as_uint(__fsub_rn(__uint_as_float(u + 0x3c800000), 0.015625f));
  else
    u += 0x3c000000;
  return __uint_as_float(u | (word)(b & 0x80) << 24);
}

// entry is entry q of a table of 16 signed bytes.
__device__ __forceinline__ int entry(unsigned long long low, unsigned long long high, word q) {
  return (signed char)((q < 8 ? low : high) >> 8 * (q & 7));
}

// integer is the value of a code.
__device__ __forceinline__ int integer(const Weight& w, word q) {
  if (w.kind == HALVES) return entry(0x0c08060403020100ull, 0xf4f8fafcfdfeff00ull, q);
  if (w.kind == LEVELED) return entry(0xf6eaddcfbfad9881ull, 0x7159453526190d01ull, q);
  return q;
}

// blockOf is block g of a tile.
__device__ __forceinline__ const byte* blockOf(const Weight& w, const byte* tile, int g) {
  return tile + g * w.block + g / w.per * w.tail;
}

// paired reports whether w has the layout for tensor cores of pairs of groups of 32, with signed codes and a half for each
// group: a block has both.
__device__ __forceinline__ bool paired(const Weight& w) { return w.laid && w.number == F16; }

// place is the place of the word of row r and vector v of a plane of fours or bytes: vector after
// vector, or in the lane order of mma. Lane 4*(r%8)+q has columns 8nq to 8nq+8n-1 of a group
// of 32n, and of each of a pair of groups columns 8q to 8q+7.
__device__ __forceinline__ int place(const Weight& w, int v, int r) {
  if (!w.laid) return 16 * v + r;
  const int n = w.group / 32, lane = 4 * (r & 7), high = r >> 3;
  if (paired(w)) return w.bits == 8 ? 128 * (v / 8) + 4 * (lane + v / 2 % 4) + 2 * (v & 1) + high : 4 * (lane + v % 4) + 2 * (v / 4) + high;
  if (w.bits == 8) {
    const int q = v / (2 * n), m = v / 2 % n;
    return 128 * m + 4 * (lane + q) + 2 * (v & 1) + high;
  }
  const int q = v / n, m = v % n;
  if (n == 1) return 2 * (lane + q) + high;
  return 128 * (m >> 1) + 4 * (lane + q) + 2 * (m & 1) + high;
}

// fours is the codes of columns 4v to 4v+3 of row r, a byte each. Signed ones are raised to the original codes.
__device__ __forceinline__ word fours(const Weight& w, const byte* block, int v, int r) {
  const word* words = (const word*)block;
  if (w.bits == 8) return words[place(w, v, r)] ^ (paired(w) ? 0x80808080 : 0);
  word codes = 0;
  int shift = 0;
  if (w.bits >= 4) {
    codes = words[place(w, v / 2, r)] >> 4 * (v & 1) & 0x0f0f0f0f;
    if (paired(w)) codes ^= 0x08080808;
    block += w.group * 8;
    shift = 4;
  }
  if (w.bits == 2 || w.bits == 3 || w.bits == 6) {
    codes |= (((const word*)block)[v / 4 * 16 + r] >> 2 * (v & 3) & 0x03030303) << shift;
    block += w.group * 4;
    shift += 2;
  }
  if (w.bits & 1) {
    const word four = block[8 * v + r / 2] >> 4 * (r & 1) & 15;
    codes |= ((four & 1) | (four & 2) << 7 | (four & 4) << 14 | (four & 8) << 21) << shift;
  }
  return codes;
}

// tailOf is the tail of superblock i of a tile.
__device__ __forceinline__ const byte* tailOf(const Weight& w, const byte* tile, int i) {
  return tile + (i + 1) * (w.per * w.block + w.tail) - w.tail;
}

// superScales is the scale of row r of a superblock, and where it has biases that of these.
__device__ __forceinline__ float2 superScales(const Weight& w, const byte* tail, int r) {
  return make_float2(floatAt(tail, F16, r), w.factors == FACTORS_K || w.factors == FACTORS_2K ? floatAt(tail + 32, F16, r) : 0.0f);
}

// factorsOf are the factors of the scale and of the bias of row r and group g, relative to the superblock's; the
// bias is subtracted.
__device__ __forceinline__ int2 factorsOf(const Weight& w, const byte* tail, int g, int r) {
  if (w.factors == FACTORS_6K) return make_int2((signed char)tail[32 + 16 * g + r], 0);
  if (w.factors == FACTORS_2K) return make_int2(tail[64 + 16 * g + r] & 15, tail[64 + 16 * g + r] >> 4);
  if (w.factors == FACTORS_XS) {
    const int low = ((const word*)(tail + 32))[r] >> 4 * g & 15;
    const int high = ((const unsigned short*)(tail + 96))[r] >> 2 * g & 3;
    return make_int2(low + 16 * high - 32, 0);
  }
  const word pairs = ((const word*)(tail + 192))[r] >> 2 * g;
  const word low = ((const word*)(tail + 64))[r] >> 4 * g & 15;
  const word least = ((const word*)(tail + 128))[r] >> 4 * g & 15;
  return make_int2(low + 16 * (pairs & 3), least + 16 * (pairs >> 16 & 3));
}

// pairOf is the place of row r among the scales of a block for tensor cores: beside the row eight further.
__device__ __forceinline__ int pairOf(int r) { return 2 * (r & 7) + (r >> 3); }

// scaleOf is the scale and the bias of row r in group g, or in one half of a pair of groups. Products are exact. For codes with
// zero points the bias is the addend of a code.
__device__ __forceinline__ float2 scaleOf(const Weight& w, const byte* tile, int g, int r, int half = 0) {
  float s, b = 0;
  if (w.factors == NO_FACTORS) {
    const byte* p = blockOf(w, tile, g) + w.codes;
    if (w.laid && w.number == F32) return ((const float2*)p)[pairOf(r)];
    if (w.laid && w.number == BF16) {
      const word pair = ((const word*)p)[pairOf(r)];
      if (w.zeros) return make_float2(scaleIn(pair), w.kind == POINTED ? zeroIn(pair) : __fmul_rn(zeroIn(pair), scaleIn(pair)));
      return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000));
    }
    s = floatAt(p, w.number, paired(w) ? 2 * pairOf(r) + half : r);
    if (w.kind == POINTED)
      b = w.zeros ? -(float)blockOf(w, tile, g)[w.zeros + r] : w.zero;
    else if (w.zero != 0)
      b = __fmul_rn(w.zero, s);
    else if (w.kind == BIASED)
      b = floatAt(p, w.number, 16 + r);
    return make_float2(s, b);
  }
  const byte* tail = tailOf(w, tile, g / w.per);
  const int2 factor = factorsOf(w, tail, g % w.per, r);
  const float2 d = superScales(w, tail, r);
  s = __fmul_rn(d.x, (float)factor.x);
  return make_float2(s, w.zero != 0 ? __fmul_rn(w.zero, s) : -__fmul_rn(d.y, (float)factor.y));
}

// plainAt is column k of row r of a block of plain numbers.
__device__ __forceinline__ float plainAt(const Weight& w, const byte* block, int k, int r) {
  return floatAt(block, w.number, w.number == BF16 ? 32 * (k / 2) + 2 * r + k % 2 : 16 * k + r);
}

// codedAt is column k of row r of a block with this scale and bias.
__device__ __forceinline__ float codedAt(const Weight& w, const byte* block, float2 s, int k, int r) {
  if (w.kind == BYTES) return __fmul_rn(e4m3(block[16 * k + r]), s.x);
  const word q = fours(w, block, k / 4, r) >> 8 * (k & 3) & 0xff;
  if (w.kind == POINTED) return __fmul_rn(s.x, __fadd_rn((float)q, s.y));
  const float x = __fmul_rn(s.x, (float)integer(w, q));
  return w.kind == BIASED ? __fadd_rn(x, s.y) : x;
}

// superCode is the code of column col of row r of a block in the layout of super.cuh.
__device__ __forceinline__ int superCode(const Weight& w, const byte* block, int col, int r) {
  const int g = col / 32, v = col % 32 / 4, k = col % 4, lane = 4 * (r & 7) + (v & 3), part = (r >> 3) + 2 * (v >> 2);
  if (w.bits == 8) return (signed char)block[512 * g + 16 * lane + 4 * part + k] - (int)w.zero;
  if (w.bits < 4) {
    const int q = block[256 * (g / 2) + 8 * lane + 4 * (g & 1) + k] >> 2 * part & 3;
    if (w.bits == 2) return w.factors == FACTORS_2K ? q : q ^ 2;
    return q | (~block[1024 + 128 * (g / 2) + 4 * lane + k] >> (part + 4 * (g & 1)) & 1) << 2;
  }
  const word low = ((const word*)block)[128 * (g / 2) + 4 * lane + 2 * (g & 1) + (r >> 3)];
  word q = low >> (w.factors == FACTORS_XS ? 16 * (v >> 2) + 4 * k : 8 * k + 4 * (v >> 2)) & 15;
  const byte* high = block + 2048;
  if (w.bits == 5) q |= (high[128 * (g / 2) + 4 * lane + k] >> (4 * (g & 1) + part) & 1) << 4;
  if (w.bits == 6) q |= ((high[256 * (g / 2) + 8 * lane + 4 * (g & 1) + k] >> 2 * part & 3) ^ 2) << 4;
  return q;
}

// gridAt is a number of a tile of a grid format in its own bits.
__device__ __forceinline__ float gridAt(const Weight& w, const byte* block, int col, int r) {
  const int g = col / 32, v = col % 32 / 4, k = col % 4, lane = 4 * (r & 7) + (v & 3), i = g / 2, n = 4 * (g & 1) + (r >> 3) + 2 * (v >> 2);
  const int entry = w.grid & 15, top = w.grid >> 4 & 15, at = entry == 4 ? 256 * i + 8 * lane : 128 * i + 8 * (lane / 2);
  const byte *signs = block + (entry == 4 ? 1024 : 512), *high = signs + 512;
  int index = block[at + n];
  if (top == 2) index |= (((const unsigned short*)high)[16 * i + lane / 2] >> 2 * n & 3) << 8;
  if (top == 1) index |= (high[entry == 4 ? 4 * lane + i : 16 * i + lane / 2] >> n & 1) << 8;
  int x = w.table[entry * index + (entry == 4 ? 0 : 4 * (lane & 1)) + k];
  if (signs[128 * i + 4 * lane + k] >> n & 1) x = -x;
  const int half = w.grid >> 8, group = half ? col / 16 : g, place = pairOf(r);
  const byte* factors = block + w.codes;
  const int factor = 2 * (factors[(half ? 8 : 4) * place + group / 2] >> 4 * (group & 1) & 15) + 1;
  const float unit = entry == 8 ? 0.125f : top ? 1.0f : 0.25f;
  const float s = __fmul_rn(__fmul_rn(floatAt(factors + (half ? 128 : 64), F16, place), unit), (float)factor);
  return __fadd_rn(__fmul_rn(s, (float)(x - (int)w.zero)), __fmul_rn(w.zero, s));
}

// superAt is a number of a tile in the layout of super.cuh.
__device__ __forceinline__ float superAt(const Weight& w, const byte* tile, int col, int r) {
  const byte *block = tile + (long long)(col / 256) * w.block, *factors = block + w.codes;
  if (w.grid) return gridAt(w, block, col % 256, r);
  const int place = pairOf(r), per = w.factors == FACTORS_K || w.factors == FACTORS_XS ? 8 : 16, at = per * place + col % 256 / (256 / per);
  const float x = integer(w, superCode(w, block, col % 256, r));
  if (w.factors == NO_FACTORS) {
    const float s = floatAt(factors, F16, place);
    return __fadd_rn(__fmul_rn(s, x), __fmul_rn(w.zero, s));
  }
  const byte* scales = factors + 16 * per;
  int factor = (signed char)factors[at], least = 0;
  if (w.factors == FACTORS_2K) least = factors[at] >> 4, factor = factors[at] & 15;
  if (w.factors == FACTORS_K) least = scales[at], scales += 128;
  const float s = __fmul_rn(floatAt(scales, w.factors == FACTORS_GRID ? F32 : F16, place), (float)factor), y = __fmul_rn(s, x);
  if (w.factors == FACTORS_XS) return y;
  return __fadd_rn(y, w.zero != 0 ? __fmul_rn(w.zero, s) : -__fmul_rn(floatAt(scales + 32, F16, place), (float)least));
}

// tabledAt is a number of a tile with table codes, in groups of 16 or 32. A word has four codes of each of
// two groups of 16, or eight of a group of 32. Behind blocks with scales of E4M3 there is their common factor.
__device__ __forceinline__ float tabledAt(const Weight& w, const byte* tile, int col, int r) {
  const byte *block = tile + (long long)(col / 64) * w.block, *scales = block + w.codes + 4 * pairOf(r);
  const bool nano = w.number == E4M3;
  const int part = col % 64 / 32, k = col & 3, quad = nano ? col % 16 / 4 : col % 32 / 8, second = nano ? col % 32 / 16 : col % 8 / 4;
  const word codes = ((const word*)block)[4 * (4 * (r & 7) + quad) + 2 * part + (r >> 3)];
  const word q = codes >> (4 * k + 16 * second) & 15;
  const float by = nano ? ((const float*)(tile + (long long)w.groups * w.block))[0] : 0.0f;
  const float s = nano ? __fmul_rn(__uint_as_float((word)scales[col % 64 / 16] << 20), by) : floatAt(scales, w.number, part);
  return __fmul_rn(s, (float)integer(w, q));
}

// numberAt is a number of a matrix.
__device__ __forceinline__ float numberAt(const Weight& w, int matrix, int row, int col) {
  const byte* tile = w.data + matrix * w.matrix + (long long)(row / 16) * w.tileBytes;
  if (w.laid == SUPER) return superAt(w, tile, col, row % 16);
  if (w.laid == TABLED) return tabledAt(w, tile, col, row % 16);
  const int g = col / w.group, k = col % w.group, r = row % 16;
  const byte* block = blockOf(w, tile, g);
  if (w.kind == PLAIN) return plainAt(w, block, k, r);
  return codedAt(w, block, scaleOf(w, tile, g, r, k / 32), k, r);
}
