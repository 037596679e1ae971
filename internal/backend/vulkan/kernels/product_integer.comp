#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "weight.glsl"
#include "experts.glsl"
#include "product.glsl"
// Kernel product_integer: products of every integer format without superblocks. A workgroup has a tile of 16 outputs and up to 8
// rows; a thread computes the sums of a group, and then the chain of an output and a row.
layout(local_size_x = 256) in;
shared float products[16][8][16], sums[16][8];
shared vec2 scales[16][16];

// terms leaves the products of a group in shared memory.
void terms(Bytes tile, int group, int slot, int o, int first, int rows) {
  Weight w = g.w;
  Bytes block = blockOf(w, tile, group);
  vec2 scale = scaleOf(w, tile, group, o);
  int zero = w.kind == POINTED ? int(scale.y) : int(w.zero);
  bool plain = w.kind == BIASED || w.kind == POINTED;
  for (int r = 0; r < rows; r++) {
    int row = sourceOf(first + r);
    int64_t from = int64_t(row) * int64_t(g.codeStride) + int64_t(group * w.group);
    int sum = 0, total = 0;
    for (int v = 0; v < w.group / 4; v++) {
      uint q = fours(w.group, w.bits, block, v, o), a = wordAt(at(g.codes, from), v);
      if (plain) {
        sum += DOTU(a, q);
      } else {
        for (int i = 0; i < 4; i++) sum += signed8(a >> 8 * i) * integer(w.kind, q >> 8 * i & 0xffu);
      }
      total += DOT(a, 0x01010101u);
    }
    vec2 tail = g.tails.v[group * g.tailRows + row];
    float x = float(sum + zero * total);
    products[slot][r][o] = w.first != 0 ? mul(x, scale.x) : mul(x, tail.x);
    if (o == 0) sums[slot][r] = w.first != 0 ? tail.x : tail.y;
  }
  scales[slot][o] = scale;
}

void main() {
  Weight w = g.w;
  int tile = tileOfGroup(), o = int(gl_LocalInvocationID.x) & 15, slot = int(gl_LocalInvocationID.x) / 16;
  Job job = part();
  int first = job.first, rows = job.rows;
  if (tile < 0 || rows == 0) return;
  Bytes p = tileOf(w, job.matrix, tile);
  bool biased = w.kind == BIASED && w.zero == 0.0;
  float acc = 0.0;
  for (int g0 = 0; g0 < w.groups; g0 += 16) {
    if (g0 + slot < w.groups) terms(p, g0 + slot, slot, o, first, rows);
    barrier();
    if (slot < rows)
      for (int k = 0; k < min(16, w.groups - g0); k++) {
        acc = fused(products[k][slot][o], w.first != 0 ? sums[k][slot] : scales[k][o].x, acc);
        if (biased) acc = fused(scales[k][o].y, sums[k][slot], acc);
      }
    barrier();
  }
  if (slot < rows) put(first + slot, tile * 16 + o, acc);
}
