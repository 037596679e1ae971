// Packed weights: the blocks of the CPU backend (internal/backend/cpu/kernel, Weight), and the decoding of their numbers.

// Weight is a matrix. weight.go writes it.
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Weight {
  Bytes data;
  int64_t matrix;         // bytes of one of a stack
  int rows, cols, tiles, tileBytes;
  int group, groups;      // columns of a block, blocks of a tile
  int codes, block;       // bytes of a block's codes, and of a block
  int per, tail;          // blocks of a superblock, or 1; bytes after them
  int kind, bits;         // how codes become numbers; of a code
  int number, factors;    // type of scales or plain numbers; of the tail
  float zero;             // biases, in multiples of the scales
  int zeros;              // where the zero points of a block begin, a byte each; 0: there are none
  int first;              // the integer sum is multiplied by the scale of the weight first
};

const int BIASED = 0, HALVES = 1, LEVELED = 2, BYTES = 3, PLAIN = 4, POINTED = 5;
const int NO_FACTORS = 0, FACTORS_K = 1, FACTORS_6K = 2, FACTORS_XS = 3, FACTORS_2K = 4, FACTORS_GRID = 5;
const int BF16 = 0, F16 = 1, F32 = 2;

// at is the address some bytes behind another.
Bytes at(Bytes p, int64_t bytes) { return Bytes(uint64_t(p) + uint64_t(bytes)); }

// wordAt and shortAt are numbers in bytes: addresses are multiples of their sizes.
uint wordAt(Bytes p, int i) { return Uints(uint64_t(p)).v[i]; }
uint shortAt(Bytes p, int i) { return uint(Halves(uint64_t(p)).v[i]); }
int signed8(uint x) { return int(x << 24) >> 24; }

// floatAt is number i of a list of a type.
float floatAt(Bytes p, int type, int i) {
  if (type == F32) return uintBitsToFloat(wordAt(p, i));
  uint h = shortAt(p, i);
  return type == F16 ? f16(h) : uintBitsToFloat(h << 16);
}

// e4m3 is the number of a byte.
float e4m3(uint b) {
  uint u = (b & 0x7fu) << 20;
  if ((b & 0x7fu) == 0x7fu) u = 0x7fc00000u;
  else if (u < 0x00800000u) u = floatBitsToUint(sub(uintBitsToFloat(u + 0x3c800000u), 0.015625));
  else u += 0x3c000000u;
  return uintBitsToFloat(u | (b & 0x80u) << 24);
}

// integer is the value of a code.
int integer(int kind, uint q) {
  const uint halves[4] = uint[](0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
  const uint levels[4] = uint[](0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
  if (kind == HALVES) return signed8(halves[q / 4u] >> 8u * (q & 3u));
  if (kind == LEVELED) return signed8(levels[q / 4u] >> 8u * (q & 3u));
  return int(q);
}

Bytes tileOf(Weight w, int matrix, int tile) { return at(w.data, int64_t(matrix) * w.matrix + int64_t(tile) * int64_t(w.tileBytes)); }

// blockOf is block g of a tile.
Bytes blockOf(Weight w, Bytes tile, int g) { return at(tile, int64_t(g * w.block + g / w.per * w.tail)); }

// wordOf is where word i of the codes of row r is, of 4 or 8 bits: see arrange of weight.go.
int wordOf(int group, int bits, int i, int r) { return (group * bits & 127) == 0 ? i / 4 * 64 + 4 * r + (i & 3) : 16 * i + r; }

// fours is the codes of columns 4v to 4v+3 of row r, a byte each.
uint fours(int group, int bits, Bytes block, int v, int r) {
  if (bits == 8) return wordAt(block, wordOf(group, bits, v, r));
  uint codes = 0u;
  int shift = 0;
  if (bits >= 4) {
    codes = wordAt(block, bits == 4 ? wordOf(group, bits, v / 2, r) : 16 * (v / 2) + r) >> 4 * (v & 1) & 0x0f0f0f0fu;
    block = at(block, int64_t(group * 8));
    shift = 4;
  }
  if (bits == 2 || bits == 3 || bits == 6) {
    codes |= (wordAt(block, v / 4 * 16 + r) >> 2 * (v & 3) & 0x03030303u) << shift;
    block = at(block, int64_t(group * 4));
    shift += 2;
  }
  if ((bits & 1) == 1) {
    uint four = uint(block.v[8 * v + r / 2]) >> 4 * (r & 1) & 15u;
    codes |= ((four & 1u) | (four & 2u) << 7 | (four & 4u) << 14 | (four & 8u) << 21) << shift;
  }
  return codes;
}

// tailOf is the tail of superblock i of a tile.
Bytes tailOf(Weight w, Bytes tile, int i) { return at(tile, int64_t((i + 1) * (w.per * w.block + w.tail) - w.tail)); }

// superScales is the scale of row r of a superblock, and where it has biases that of these.
vec2 superScales(Weight w, Bytes tail, int r) {
  if (w.factors == FACTORS_GRID) return vec2(floatAt(tail, F32, r), 0.0);
  return vec2(floatAt(tail, F16, r), w.factors == FACTORS_K || w.factors == FACTORS_2K ? floatAt(tail, F16, 16 + r) : 0.0);
}

// factorsOf are the factors of the scale and of the bias of row r and group g, relative to the superblock's; the
// bias is subtracted.
ivec2 factorsOf(Weight w, Bytes tail, int g, int r) {
  if (w.factors == FACTORS_GRID) return ivec2(int(tail.v[64 + 16 * g + r]), 0);
  if (w.factors == FACTORS_6K) return ivec2(signed8(uint(tail.v[32 + 16 * g + r])), 0);
  if (w.factors == FACTORS_2K) return ivec2(int(tail.v[64 + 16 * g + r]) & 15, int(tail.v[64 + 16 * g + r]) >> 4);
  if (w.factors == FACTORS_XS) {
    int low = int(wordAt(at(tail, 32l), r) >> 4 * g & 15u), high = int(shortAt(at(tail, 96l), r) >> 2 * g & 3u);
    return ivec2(low + 16 * high - 32, 0);
  }
  uint pairs = wordAt(at(tail, 192l), r) >> 2 * g;
  int low = int(wordAt(at(tail, 64l), r) >> 4 * g & 15u), least = int(wordAt(at(tail, 128l), r) >> 4 * g & 15u);
  return ivec2(low + 16 * int(pairs & 3u), least + 16 * int(pairs >> 16 & 3u));
}

// scaleOf is the scale and the bias of row r in group g. For codes with zero points the bias is the addend of a code.
vec2 scaleOf(Weight w, Bytes tile, int g, int r) {
  if (w.factors == NO_FACTORS) {
    Bytes p = at(blockOf(w, tile, g), int64_t(w.codes));
    float s = floatAt(p, w.number, r), b = 0.0;
    if (w.kind == POINTED) b = w.zeros > 0 ? float(-int(blockOf(w, tile, g).v[w.zeros + r])) : w.zero;
    else if (w.zero != 0.0) b = mul(w.zero, s);
    else if (w.kind == BIASED) b = floatAt(p, w.number, 16 + r);
    return vec2(s, b);
  }
  Bytes tail = tailOf(w, tile, g / w.per);
  ivec2 factor = factorsOf(w, tail, g % w.per, r);
  vec2 d = superScales(w, tail, r);
  float s = mul(d.x, float(factor.x));
  return vec2(s, w.zero != 0.0 ? mul(w.zero, s) : negated(mul(d.y, float(factor.y))));
}

// codedAt is column k of row r of a block with this scale and bias.
float codedAt(Weight w, Bytes block, vec2 s, int k, int r) {
  if (w.kind == PLAIN) return floatAt(block, w.number, w.number == BF16 ? 32 * (k / 2) + 2 * r + k % 2 : 16 * k + r);
  if (w.kind == BYTES) return mul(e4m3(uint(block.v[16 * k + r])), s.x);
  uint q = fours(w.group, w.bits, block, k / 4, r) >> 8 * (k & 3) & 0xffu;
  if (w.kind == POINTED) return mul(s.x, add(float(q), s.y));
  float x = mul(s.x, float(integer(w.kind, q)));
  return w.kind == BIASED ? add(x, s.y) : x;
}

// numberAt is a number of the first matrix.
float numberAt(Weight w, int row, int col) {
  Bytes tile = tileOf(w, 0, row / 16);
  int g = col / w.group, r = row % 16;
  vec2 s = w.kind == PLAIN ? vec2(0.0) : scaleOf(w, tile, g, r);
  return codedAt(w, blockOf(w, tile, g), s, col % w.group, r);
}
