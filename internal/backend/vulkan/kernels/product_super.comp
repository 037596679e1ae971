#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "weight.glsl"
#include "experts.glsl"
#include "product.glsl"
// Kernel product_super: products with superblocks. A workgroup has a tile of 16 outputs and up to 8 rows; 16 threads compute the
// parts of a superblock for an output, and then one the chain of an output and a row.
layout(local_size_x = 256) in;
shared int sums[8][16], least[8][16];

void main() {
  Weight w = g.w;
  int tile = tileOfGroup(), o = int(gl_LocalInvocationID.x) & 15, slot = int(gl_LocalInvocationID.x) / 16;
  Job job = part();
  int first = job.first, rows = job.rows;
  if (tile < 0 || rows == 0) return;
  Bytes p = tileOf(w, job.matrix, tile);
  float acc = 0.0;
  for (int i = 0; i < w.groups / w.per; i++) {
    if (slot < 8) sums[slot][o] = 0, least[slot][o] = 0;
    barrier();
    Bytes tail = tailOf(w, p, i);
    for (int k = slot; k < w.per; k += 16) {
      Bytes block = blockOf(w, p, i * w.per + k);
      ivec2 factor = factorsOf(w, tail, k, o);
      for (int r = 0; r < rows; r++) {
        int row = sourceOf(first + r);
        int64_t from = int64_t(row) * int64_t(g.codeStride) + int64_t((i * w.per + k) * w.group);
        int sum = 0, total = 0;
        for (int v = 0; v < w.group / 4; v++) {
          uint q = fours(w.group, w.bits, block, v, o), a = wordAt(at(g.codes, from), v);
          if (w.kind == LEVELED) {
            for (int j = 0; j < 4; j++) sum += signed8(a >> 8 * j) * integer(w.kind, q >> 8 * j & 0xffu);
          } else {
            sum += DOTU(a, q);
          }
          total += DOT(a, 0x01010101u);
        }
        atomicAdd(sums[r][o], factor.x * (sum + int(w.zero) * total));
        atomicAdd(least[r][o], factor.y * total);
      }
    }
    barrier();
    if (slot < rows) {
      vec2 d = superScales(w, tail, o);
      float t = mul(float(sums[slot][o]), d.x);
      if (w.factors == FACTORS_K || w.factors == FACTORS_2K) t = fused(float(least[slot][o]), negated(d.y), t);
      acc = fused(t, g.tails.v[i * g.tailRows + sourceOf(first + slot)].x, acc);
    }
    barrier();
  }
  if (slot < rows) put(first + slot, tile * 16 + o, acc);
}
