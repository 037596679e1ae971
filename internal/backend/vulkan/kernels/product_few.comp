#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "bits.glsl"
#include "memory.glsl"
#include "weight.glsl"
#include "experts.glsl"
// Kernel product_few: products of up to 8 rows with codes of 4 or 8 bits in groups. A workgroup has a tile of 16 outputs. Its threads
// load the codes of a chunk of groups for some outputs each, in the layout of weight.go: 16 bytes belong to one output. The rows of the
// chunk come through shared memory, and the products of groups go there. Then a thread for each output and row adds these in their
// order, while the next chunk is loaded. All loads of a chunk are made before the first is used.
layout(constant_id = 1) const int ROWS = 1;
layout(constant_id = 2) const int BITS = 4;
layout(constant_id = 3) const int GROUP = 64;
layout(constant_id = 4) const int ZEROED = 0; // codes have zero points
layout(constant_id = 5) const int NUMBER = 0; // type of the scales
layout(constant_id = 6) const int OWN = 1;    // outputs of a thread
layout(constant_id = 7) const int EACH = 1;   // groups of a thread in a chunk
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args {
  Bytes data;      // the first tile
  int64_t matrix_; // bytes of one of a stack
  Bytes codes;     // [rows][codeStride]
  Pairs tails;     // [groups][tailRows]
  Floats dst;
  Floats bias;  // [outputs], or none
  Call only;    // lists the tiles; none: all
  Jobs jobs;    // of experts; none: one matrix multiplies all rows
  Ints sources; // rows of the jobs' slots; none: a slot is a row
  int tileBytes, groups, outputs, block, zeros, tailRows, codeStride, dstStride, rows, adds, first;
  float zero;
} g;
#define RESULTS g.outputs
#define MATRIX 0
#include "product.glsl"

const int LANES = 16 / OWN, SLOTS = 256 / LANES;  // threads of a group, groups that are loaded at once
const int QUADS = GROUP * BITS / 128;             // 16 bytes each, of an output's group
const int CHUNK = SLOTS * EACH;                   // groups
const int PART = ROWS < 4 ? ROWS : 4;             // rows in shared memory at a time
const int WIDE = GROUP / 16;                      // 16 codes each, of a row's group
const int ACTS = (CHUNK * PART * WIDE + 255) / 256, TAILS = (CHUNK * ROWS + 255) / 256; // of a thread
const int LINKS = LEVEL == 1u || LEVEL == 5u ? 1 : 8;                                   // groups of a chain that are read at once
shared uvec4 acts[CHUNK * PART * WIDE]; // [place][row]
shared vec2 tails[CHUNK * ROWS], scales[CHUNK * 16];
shared float products[CHUNK * ROWS * 16], sums[CHUNK * ROWS];
shared uint rough; // a factor is too small for chains without tests

int self, lane, slot;
uvec4 codes[EACH * OWN * QUADS], nextActs[ROWS / PART * ACTS];
uvec2 raw[EACH * OWN]; // scale and bias or zero point
vec2 nextTails[TAILS];

uint rawAt(Bytes p, int i) { return NUMBER == F32 ? wordAt(p, i) : shortAt(p, i); }
float numberOf(uint x) { return NUMBER == F16 ? f16(x) : uintBitsToFloat(NUMBER == F32 ? x : x << 16); }

// load reads what a thread has of the chunk from group g0 on. Behind the last group and row it reads these again.
void load(Bytes tile, int g0, int first, int rows) {
  [[unroll]] for (int e = 0; e < EACH; e++) {
    Bytes block = at(tile, int64_t(min(g0 + e * SLOTS + slot, g.groups - 1) * g.block)), tail = at(block, int64_t(2 * GROUP * BITS));
    [[unroll]] for (int n = 0; n < OWN; n++) {
      int o = lane + n * LANES;
      [[unroll]] for (int q = 0; q < QUADS; q++) codes[(e * OWN + n) * QUADS + q] = Quads(uint64_t(block)).v[16 * q + o];
      uint bias = 0u;
      if (ZEROED == 0) bias = rawAt(tail, 16 + o);
      else if (g.zeros > 0) bias = uint(block.v[g.zeros + o]);
      raw[e * OWN + n] = uvec2(rawAt(tail, o), bias);
    }
  }
  [[unroll]] for (int p = 0; p < ROWS / PART; p++)
    [[unroll]] for (int n = 0; n < ACTS; n++) {
      int i = self + 256 * n, group = min(g0 + i / (PART * WIDE), g.groups - 1), row = sourceOf(first + min(p * PART + i / WIDE % PART, rows - 1));
      nextActs[p * ACTS + n] = Quads(uint64_t(g.codes) + uint64_t(row) * uint64_t(g.codeStride) + uint64_t(group * GROUP)).v[i % WIDE];
    }
  [[unroll]] for (int n = 0; n < TAILS; n++) {
    int i = self + 256 * n;
    nextTails[n] = g.tails.v[min(g0 + i / ROWS, g.groups - 1) * g.tailRows + sourceOf(first + min(i % ROWS, rows - 1))];
  }
}

// stage brings rows to shared memory.
void stage(int part) {
  [[unroll]] for (int n = 0; n < ACTS; n++) {
    int i = self + 256 * n;
    if (i < CHUNK * PART * WIDE) acts[i] = nextActs[part * ACTS + n];
  }
  if (part == 0)
    [[unroll]] for (int n = 0; n < TAILS; n++) {
      int i = self + 256 * n;
      if (i >= CHUNK * ROWS) break;
      vec2 tail = nextTails[n];
      tails[i] = tail;
      if (faint(tail.x) || faint(tail.y)) rough = 1u;
    }
}

// terms leaves the products of a thread's groups with the staged rows in shared memory.
void terms(int part) {
  [[unroll]] for (int e = 0; e < EACH; e++) {
    int place = e * SLOTS + slot;
    vec2 s[OWN];
    [[unroll]] for (int n = 0; n < OWN; n++) {
      uvec2 x = raw[e * OWN + n];
      s[n] = vec2(numberOf(x.x), ZEROED == 0 ? numberOf(x.y) : g.zeros > 0 ? float(-int(x.y)) : g.zero);
      if (part > 0) continue;
      if (faint(s[n].x) || ZEROED == 0 && faint(s[n].y)) rough = 1u;
      scales[place * 16 + lane + n * LANES] = s[n];
    }
    [[unroll]] for (int r = 0; r < PART; r++) {
      int total = 0, sum[OWN];
      [[unroll]] for (int n = 0; n < OWN; n++) sum[n] = 0;
      [[unroll]] for (int q = 0; q < WIDE; q++) {
        uvec4 x = acts[(place * PART + r) * WIDE + q];
        if (ZEROED == 1)
          [[unroll]] for (int i = 0; i < 4; i++) total += DOT(x[i], 0x01010101u);
        [[unroll]] for (int n = 0; n < OWN; n++) {
          uvec4 c = codes[(e * OWN + n) * QUADS + q * BITS / 8], y = c;
          if (BITS == 4) {
            uvec2 half_ = (q & 1) == 0 ? c.xy : c.zw;
            y = uvec4(half_.x, half_.x >> 4, half_.y, half_.y >> 4) & 0x0f0f0f0fu;
          }
          [[unroll]] for (int i = 0; i < 4; i++) sum[n] += DOTU(x[i], y[i]);
        }
      }
      int to = place * ROWS + part * PART + r;
      vec2 tail = tails[to];
      [[unroll]] for (int n = 0; n < OWN; n++)
        products[to * 16 + lane + n * LANES] = mulPlain(float(ZEROED == 1 ? sum[n] + int(s[n].y) * total : sum[n]), g.first != 0 ? s[n].x : tail.x);
      if (lane == 0) sums[to] = g.first != 0 ? tail.x : tail.y;
    }
  }
}

// chain adds the products of n groups of output o and row r to acc.
float chain(float acc, int n, int o, int r) {
  float begin = acc;
  if (LEVEL != 2u)
    for (int k0 = 0; k0 < n; k0 += LINKS) {
      float x[LINKS], sum[LINKS];
      vec2 s[LINKS];
      [[unroll]] for (int j = 0; j < LINKS; j++) {
        int k = min(k0 + j, CHUNK - 1);
        x[j] = products[(k * ROWS + r) * 16 + o], sum[j] = sums[k * ROWS + r], s[j] = scales[k * 16 + o];
      }
      [[unroll]] for (int j = 0; j < LINKS; j++) {
        float y = fusedPlain(x[j], g.first != 0 ? sum[j] : s[j].x, acc);
        if (ZEROED == 0) y = fusedPlain(s[j].y, sum[j], y);
        acc = k0 + j < n ? y : acc;
      }
    }
  if (LEVEL == 2u || LEVEL >= 3u && rough != 0u) {
    acc = begin;
    [[dont_unroll]] for (int k = 0; k < n; k++) {
      float sum = sums[k * ROWS + r];
      vec2 s = scales[k * 16 + o];
      acc = fused(products[(k * ROWS + r) * 16 + o], g.first != 0 ? sum : s.x, acc);
      if (ZEROED == 0) acc = fused(s.y, sum, acc);
    }
  }
  return acc;
}

void main() {
  int tile = tileOfGroup();
  self = int(gl_LocalInvocationID.x), lane = self % LANES, slot = self / LANES;
  Job job = part();
  int first = job.first, rows = job.rows, r = self / 16;
  if (tile < 0 || rows == 0) return;
  Bytes p = at(g.data, int64_t(job.matrix) * g.matrix_ + int64_t(tile) * int64_t(g.tileBytes));
  if (self == 0) rough = 0u;
  barrier();
  float acc = 0.0;
  // A GPU waits for instructions that it has not executed: every step is in the program once.
  [[dont_unroll]] for (int g0 = -CHUNK; g0 < g.groups; g0 += CHUNK) {
    if (g0 + CHUNK < g.groups) load(p, g0 + CHUNK, first, rows);
    if (g0 >= 0 && r < rows) acc = chain(acc, min(CHUNK, g.groups - g0), self & 15, r);
    if (g0 + CHUNK >= g.groups) break;
    [[unroll]] for (int n = 0; n < ROWS / PART; n++) {
      stage(n);
      barrier();
      terms(n);
      barrier();
    }
  }
  if (r < rows) put(first + r, tile * 16 + (self & 15), acc);
}
