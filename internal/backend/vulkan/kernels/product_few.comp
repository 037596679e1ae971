#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "weight.glsl"
#include "experts.glsl"
// Kernel product_few: products of up to 8 rows with codes of 4 or 8 bits in groups. A workgroup has a tile of 16 outputs. Its threads
// read the codes of a chunk of groups for some outputs each, and leave the products of groups in shared memory, in the layout of
// weight.go: 16 bytes belong to one output. Then a thread for each output and row adds the products in their order, while the next
// chunk is read.
layout(constant_id = 1) const int ROWS = 1;
layout(constant_id = 2) const int BITS = 4;
layout(constant_id = 3) const int GROUP = 64;
layout(constant_id = 4) const int ZEROED = 0; // codes have zero points
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
  int tileBytes, groups, outputs, block, zeros, number, tailRows, codeStride, dstStride, rows, adds, first;
  float zero;
} g;
#define RESULTS g.outputs
#define MATRIX 0
#include "product.glsl"

const int OWN = ROWS < 4 ? 1 : 2;                                 // outputs of a thread
const int LANES = 16 / OWN, SLOTS = 256 / LANES;                  // threads of a group, groups that are read at once
const int QUADS = GROUP * BITS / 128;                             // 16 bytes each, of an output's group
const int EACH = ROWS > 2 || QUADS > 4 ? 1 : QUADS > 2 ? 2 : 4;   // groups of a thread in a chunk
const int CHUNK = SLOTS * EACH;                                   // groups
shared float products[CHUNK * ROWS * 16], sums[CHUNK * ROWS];
shared vec2 scales[CHUNK * 16];
shared uint rough; // a factor is too small for chains without tests

int lane, slot;
uvec4 codes[EACH * OWN * QUADS];
vec2 factors[EACH * OWN];

// load reads the codes and scales of a thread in the chunk from group g0 on.
void load(Bytes tile, int g0) {
  for (int e = 0; e < EACH; e++) {
    int group = min(g0 + e * SLOTS + slot, g.groups - 1);
    Bytes block = at(tile, int64_t(group * g.block)), tail = at(block, int64_t(2 * GROUP * BITS));
    for (int n = 0; n < OWN; n++) {
      int o = lane + n * LANES;
      for (int q = 0; q < QUADS; q++) codes[(e * OWN + n) * QUADS + q] = Quads(uint64_t(block)).v[16 * q + o];
      float zero = g.zero;
      if (ZEROED == 0) zero = floatAt(tail, g.number, 16 + o);
      else if (g.zeros > 0) zero = float(-int(block.v[g.zeros + o]));
      factors[e * OWN + n] = vec2(floatAt(tail, g.number, o), zero);
    }
  }
}

// terms leaves the products of a thread's groups in shared memory.
void terms(int g0, int first, int rows) {
  for (int e = 0; e < EACH; e++) {
    int place = e * SLOTS + slot, group = g0 + place;
    if (group >= g.groups) break;
    for (int r = 0; r < ROWS; r++) {
      if (r >= rows) break;
      int row = sourceOf(first + r), total = 0, sum[OWN];
      Quads a = Quads(uint64_t(g.codes) + uint64_t(row) * uint64_t(g.codeStride) + uint64_t(group * GROUP));
      for (int n = 0; n < OWN; n++) sum[n] = 0;
      for (int q = 0; q < GROUP / 16; q++) {
        uvec4 x = a.v[q];
        if (ZEROED == 1)
          for (int i = 0; i < 4; i++) total += DOT(x[i], 0x01010101u);
        for (int n = 0; n < OWN; n++) {
          uvec4 c = codes[(e * OWN + n) * QUADS + q * BITS / 8];
          uvec4 y = c;
          if (BITS == 4) {
            uvec2 half_ = (q & 1) == 0 ? c.xy : c.zw;
            y = uvec4(half_.x, half_.x >> 4, half_.y, half_.y >> 4) & 0x0f0f0f0fu;
          }
          for (int i = 0; i < 4; i++) sum[n] += DOTU(x[i], y[i]);
        }
      }
      vec2 tail = g.tails.v[group * g.tailRows + row];
      for (int n = 0; n < OWN; n++) {
        vec2 s = factors[e * OWN + n];
        float x = float(ZEROED == 1 ? sum[n] + int(s.y) * total : sum[n]), t = mulPlain(x, g.first != 0 ? s.x : tail.x);
        products[(place * ROWS + r) * 16 + lane + n * LANES] = t;
      }
      if (lane == 0) {
        sums[place * ROWS + r] = g.first != 0 ? tail.x : tail.y;
        if (faint(tail.x) || faint(tail.y)) rough = 1u;
      }
    }
    for (int n = 0; n < OWN; n++) {
      vec2 s = factors[e * OWN + n];
      if (faint(s.x) || ZEROED == 0 && faint(s.y)) rough = 1u;
      scales[place * 16 + lane + n * LANES] = s;
    }
  }
}

void main() {
  int i = int(gl_LocalInvocationID.x), tile = tileOfGroup(), o = i & 15, r = i / 16;
  lane = i % LANES, slot = i / LANES;
  Job job = part();
  int first = job.first, rows = job.rows;
  if (tile < 0 || rows == 0) return;
  Bytes p = at(g.data, int64_t(job.matrix) * g.matrix_ + int64_t(tile) * int64_t(g.tileBytes));
  if (i == 0) rough = 0u;
  load(p, 0);
  barrier();
  float acc = 0.0;
  for (int g0 = 0; g0 < g.groups; g0 += CHUNK) {
    terms(g0, first, rows);
    barrier();
    if (g0 + CHUNK < g.groups) load(p, g0 + CHUNK);
    if (r < rows) {
      int n = min(CHUNK, g.groups - g0);
      float begin = acc;
      if (LEVEL != 2u)
        for (int k = 0; k < n; k++) {
          float sum = sums[k * ROWS + r];
          vec2 s = scales[k * 16 + o];
          acc = fusedPlain(products[(k * ROWS + r) * 16 + o], g.first != 0 ? sum : s.x, acc);
          if (ZEROED == 0) acc = fusedPlain(s.y, sum, acc);
        }
      if (LEVEL == 2u || LEVEL >= 3u && rough != 0u) {
        acc = begin;
        for (int k = 0; k < n; k++) {
          float sum = sums[k * ROWS + r];
          vec2 s = scales[k * 16 + o];
          acc = fused(products[(k * ROWS + r) * 16 + o], g.first != 0 ? sum : s.x, acc);
          if (ZEROED == 0) acc = fused(s.y, sum, acc);
        }
      }
    }
    barrier();
  }
  if (r < rows) put(first + r, tile * 16 + o, acc);
}
