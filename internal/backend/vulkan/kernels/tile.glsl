// Products of many rows. A workgroup has ROWS rows and OUTPUTS outputs, and walks over the columns a stage at a time: the codes of rows
// and outputs go to shared memory as signed bytes, and the sums of a group, integers, to chains of fused operations. The next stage is
// loaded into registers meanwhile. Groups are of 16, 32, 64 or 128 columns.
layout(constant_id = 1) const int THREADS = 256;
layout(constant_id = 2) const int BITS = 4;
layout(constant_id = 3) const int GROUP = 64;
layout(constant_id = 4) const int KIND = 0;
layout(constant_id = 5) const int ADDENDS = 0; // what a group has besides a scale
layout(constant_id = 6) const int NUMBER = 0;  // type of the scales
layout(constant_id = 7) const int BUFFERS = 2; // stages in shared memory
layout(local_size_x_id = 1) in;
layout(push_constant, scalar) uniform Args {
  Bytes data;      // the first tile
  int64_t matrix_; // bytes of one of a stack
  Bytes codes;     // [rows][codeStride]
  Pairs tails;     // [groups][tailRows]
  Floats dst;
  Floats bias;  // [outputs], or none
  Call only;    // lists the tiles; none: all
  Jobs jobs;    // none
  Ints sources; // none
  int tileBytes, groups, outputs, block, zeros, tailRows, codeStride, dstStride, rows, adds, first;
  float zero;
} g;
#define RESULTS g.outputs
#define MATRIX 0
#include "product.glsl"

const int WITH_BIAS = 0, WITH_ZERO = 1;  // of ADDENDS; otherwise there is none
const int STAGE = GROUP > 64 ? GROUP : 64, QUADS = STAGE / 16, STRIDE = QUADS + 1; // columns, quads, quads from row to row
const int SLOTS = STAGE / GROUP, WIDE = GROUP / 16;                                // groups of a stage, quads of a group
const bool PAIRED = BITS == 4 && GROUP >= 32;                                       // 16 bytes are 32 codes of an output
const int ITEM = PAIRED ? 32 : 16, ITEMS = STAGE / ITEM;                           // columns that a thread loads at once
const bool TOTALS = ADDENDS == WITH_ZERO || BITS == 8;                              // sums of the codes of rows are needed
const int ROW_LOADS = (QUADS * ROWS + THREADS - 1) / THREADS, LOADS = (ITEMS * OUTPUTS + THREADS - 1) / THREADS;
const int TAIL_LOADS = (SLOTS * ROWS + THREADS - 1) / THREADS, SCALE_LOADS = (SLOTS * OUTPUTS + THREADS - 1) / THREADS;
shared uvec4 rowCodes[BUFFERS * ROWS * STRIDE], outputCodes[BUFFERS * OUTPUTS * STRIDE];
shared vec2 rowTails[BUFFERS * SLOTS * ROWS], outputScales[BUFFERS * SLOTS * OUTPUTS];
shared int partial[TOTALS ? BUFFERS * ROWS * QUADS : 1]; // sums of 16 codes of a row
shared uint faints;                                      // a scale is too small for chains without tests
uvec4 nextRows[ROW_LOADS], nextOutputs[LOADS];
vec2 nextTails[TAIL_LOADS];
uvec2 nextScales[SCALE_LOADS];
uint64_t rowsAt[ROW_LOADS], outputsAt[LOADS], scalesAt[SCALE_LOADS]; // or 0

int self() { return int(gl_LocalInvocationID.x); }
int firstRow() { return int(gl_WorkGroupID.y) * ROWS; }

// tileAt is the tile of 16 outputs at a place of the workgroup, or -1.
int tileAt(int place) {
  int i = int(gl_WorkGroupID.x) * (OUTPUTS / 16) + place;
  if (!none(g.only)) return i < g.only.onlys ? g.only.only.v[i] : -1;
  return 16 * i < g.outputs ? i : -1;
}
uint64_t addressOf(int tile) { return tile < 0 ? 0ul : uint64_t(g.data) + uint64_t(tile) * uint64_t(g.tileBytes); }

// signedBytes are four codes as signed bytes: 128 less than the code if it has 8 bits and no sign.
uint signedBytes(uint codes) {
  if (KIND == HALVES || KIND == LEVELED) {
    uint list = 0u;
    for (int i = 0; i < 4; i++) list |= (uint(integer(KIND, codes >> 8 * i & 0xffu)) & 0xffu) << 8 * i;
    return list;
  }
  return BITS == 8 ? codes ^ 0x80808080u : codes;
}
uvec4 signedQuad(uvec4 x) { return uvec4(signedBytes(x.x), signedBytes(x.y), signedBytes(x.z), signedBytes(x.w)); }

// rawScale is the scale of output o of a block, and its bias or zero point, as they are in memory: nothing waits for them.
uint rawAt(Bytes p, int i) { return NUMBER == F32 ? wordAt(p, i) : shortAt(p, i); }
uvec2 rawScale(Bytes block, int o) {
  Bytes tail = at(block, int64_t(2 * GROUP * BITS));
  uint more = 0u;
  if (ADDENDS == WITH_BIAS) more = rawAt(tail, 16 + o);
  else if (ADDENDS == WITH_ZERO && g.zeros > 0) more = uint(block.v[g.zeros + o]);
  return uvec2(rawAt(tail, o), more);
}
float numberOf(uint x) { return NUMBER == F16 ? f16(x) : uintBitsToFloat(NUMBER == F32 ? x : x << 16); }
vec2 scaleOf(uvec2 raw) {
  return vec2(numberOf(raw.x), ADDENDS == WITH_BIAS ? numberOf(raw.y) : ADDENDS == WITH_ZERO && g.zeros > 0 ? float(-int(raw.y)) : g.zero);
}

// place finds what a thread loads.
void place() {
  int t = self();
  [[unroll]] for (int n = 0; n < ROW_LOADS; n++) {
    int i = t + THREADS * n, row = firstRow() + i / QUADS;
    rowsAt[n] = i < QUADS * ROWS && row < g.rows ? uint64_t(g.codes) + uint64_t(row) * uint64_t(g.codeStride) + uint64_t(i % QUADS * 16) : 0ul;
  }
  [[unroll]] for (int n = 0; n < LOADS; n++) {
    int i = t + THREADS * n;
    outputsAt[n] = i < ITEMS * OUTPUTS ? addressOf(tileAt(i / (16 * ITEMS))) : 0ul;
  }
  [[unroll]] for (int n = 0; n < SCALE_LOADS; n++) {
    int i = t + THREADS * n;
    scalesAt[n] = i < SLOTS * OUTPUTS ? addressOf(tileAt(i % OUTPUTS / 16)) : 0ul;
  }
}

// fetch loads a stage into registers.
void fetch(int first) {
  int t = self(), all = GROUP * g.groups;
  [[unroll]] for (int n = 0; n < ROW_LOADS; n++) {
    nextRows[n] = uvec4(0u);
    if (rowsAt[n] != 0ul && first + (t + THREADS * n) % QUADS * 16 < all) nextRows[n] = Quads(rowsAt[n] + uint64_t(first)).v[0];
  }
  [[unroll]] for (int n = 0; n < LOADS; n++) {
    int i = t + THREADS * n, column = first + i / 16 % ITEMS * ITEM, o = i & 15;
    nextOutputs[n] = uvec4(0u);
    if (outputsAt[n] == 0ul || column >= all) continue;
    Bytes block = Bytes(outputsAt[n] + uint64_t(column / GROUP * g.block));
    if (PAIRED || BITS == 8 && GROUP >= 16) {
      nextOutputs[n] = Quads(uint64_t(block)).v[16 * (column % GROUP / ITEM) + o];
    } else {
      [[unroll]] for (int k = 0; k < 4; k++) nextOutputs[n][k] = fours(GROUP, BITS, block, column % GROUP / 4 + k, o);
    }
  }
  [[unroll]] for (int n = 0; n < TAIL_LOADS; n++) {
    int i = t + THREADS * n, own = first / GROUP + i / ROWS, row = firstRow() + i % ROWS;
    nextTails[n] = vec2(0.0);
    if (i < SLOTS * ROWS && own < g.groups && row < g.rows) nextTails[n] = g.tails.v[own * g.tailRows + row];
  }
  [[unroll]] for (int n = 0; n < SCALE_LOADS; n++) {
    int i = t + THREADS * n, own = first / GROUP + i / OUTPUTS;
    nextScales[n] = uvec2(0u);
    if (scalesAt[n] != 0ul && own < g.groups) nextScales[n] = rawScale(Bytes(scalesAt[n] + uint64_t(own * g.block)), i & 15);
  }
}

// store brings a stage to a buffer in shared memory.
void store(int to) {
  int t = self();
  [[unroll]] for (int n = 0; n < ROW_LOADS; n++) {
    int i = t + THREADS * n;
    if (QUADS * ROWS % THREADS == 0 || i < QUADS * ROWS) {
      uvec4 x = nextRows[n];
      rowCodes[(to * ROWS + i / QUADS) * STRIDE + i % QUADS] = x;
      if (TOTALS) partial[to * ROWS * QUADS + i] = DOT(x.x, 0x01010101u) + DOT(x.y, 0x01010101u) + DOT(x.z, 0x01010101u) + DOT(x.w, 0x01010101u);
    }
  }
  [[unroll]] for (int n = 0; n < LOADS; n++) {
    int i = t + THREADS * n, at_ = (to * OUTPUTS + i / (16 * ITEMS) * 16 + i % 16) * STRIDE + i / 16 % ITEMS * (ITEM / 16);
    if (ITEMS * OUTPUTS % THREADS == 0 || i < ITEMS * OUTPUTS) {
      uvec4 x = nextOutputs[n];
      if (PAIRED) {
        outputCodes[at_] = signedQuad(uvec4(x.x, x.x >> 4, x.y, x.y >> 4) & 0x0f0f0f0fu);
        outputCodes[at_ + 1] = signedQuad(uvec4(x.z, x.z >> 4, x.w, x.w >> 4) & 0x0f0f0f0fu);
      } else {
        outputCodes[at_] = signedQuad(x);
      }
    }
  }
  bool small_ = false;
  [[unroll]] for (int n = 0; n < TAIL_LOADS; n++) {
    int i = t + THREADS * n;
    if (SLOTS * ROWS % THREADS == 0 || i < SLOTS * ROWS) rowTails[to * SLOTS * ROWS + i] = nextTails[n];
    small_ = small_ || faint(nextTails[n].x) || faint(nextTails[n].y);
  }
  [[unroll]] for (int n = 0; n < SCALE_LOADS; n++) {
    int i = t + THREADS * n;
    vec2 scale = scaleOf(nextScales[n]);
    if (SLOTS * OUTPUTS % THREADS == 0 || i < SLOTS * OUTPUTS) outputScales[to * SLOTS * OUTPUTS + i] = scale;
    small_ = small_ || faint(scale.x) || ADDENDS == WITH_BIAS && faint(scale.y);
  }
  if (small_) faints = 1u;
}

// addend is what zero points and the sign of codes add to the sum of a group of a row and an output.
int addend(int buffer_, int slot, int r, vec2 scale) {
  int total = 0;
  [[unroll]] for (int q = 0; q < WIDE; q++) total += partial[(buffer_ * ROWS + r) * QUADS + slot * WIDE + q];
  return ((ADDENDS == WITH_ZERO ? int(scale.y) : 0) + (BITS == 8 ? 128 : 0)) * total;
}

// link adds the sum x of a group to a chain.
float link(float x, vec2 tail, vec2 scale, float acc) {
  float s = g.first != 0 ? tail.x : tail.y;
  acc = fusedPlain(mulPlain(x, g.first != 0 ? scale.x : tail.x), g.first != 0 ? s : scale.x, acc);
  return ADDENDS == WITH_BIAS ? fusedPlain(scale.y, s, acc) : acc;
}

// slow is an output of a row with every operation tested, from memory.
float slow(int row, int tile, int o) {
  float acc = 0.0;
  for (int group = 0; group < g.groups; group++) {
    Bytes block = Bytes(addressOf(tile) + uint64_t(group * g.block)), codes = at(g.codes, int64_t(row) * int64_t(g.codeStride) + int64_t(group * GROUP));
    int sum = 0, total = 0;
    for (int v = 0; v < GROUP / 4; v++) {
      uint a = wordAt(codes, v);
      sum += DOT(a, signedBytes(fours(GROUP, BITS, block, v, o)));
      total += DOT(a, 0x01010101u);
    }
    vec2 scale = scaleOf(rawScale(block, o)), tail = g.tails.v[group * g.tailRows + row];
    sum += ((ADDENDS == WITH_ZERO ? int(scale.y) : 0) + (BITS == 8 ? 128 : 0)) * total;
    float s = g.first != 0 ? tail.x : tail.y;
    acc = fused(mul(float(sum), g.first != 0 ? scale.x : tail.x), g.first != 0 ? s : scale.x, acc);
    if (ADDENDS == WITH_BIAS) acc = fused(scale.y, s, acc);
  }
  return acc;
}

// again reports whether results are computed again because a scale was too small.
bool again() { return LEVEL == 2u || LEVEL >= 3u && faints != 0u; }

// putTile writes a result of the workgroup, row r and output o of it, which is v or, with it, computed again.
void putTile(int r, int o, float v, bool again_) {
  int row = firstRow() + r, tile = tileAt(o / 16);
  if (row < g.rows && tile >= 0) put(row, tile * 16 + o % 16, again_ ? slow(row, tile, o % 16) : v);
}
