#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "weight.glsl"
#include "experts.glsl"
#include "product.glsl"
// Kernel product_float: products of every format with float32 rows. A workgroup has a tile of 16 outputs and up to 8 rows, a
// thread an output and a row: a chain over the even columns, one over the odd ones, and their sum.
layout(local_size_x = 128) in;
shared float panel[64][16];
void main() {
  Weight w = g.w;
  int tile = tileOfGroup(), o = int(gl_LocalInvocationID.x) & 15, slot = int(gl_LocalInvocationID.x) / 16;
  Job job = part();
  int first = job.first, rows = job.rows;
  if (tile < 0 || rows == 0) return;
  bool mine = slot < rows;
  Bytes p = tileOf(w, job.matrix, tile);
  int x = sourceOf(first + (mine ? slot : 0)) * g.xStride;
  float even = 0.0, odd = 0.0;
  for (int i = 0; i < w.groups; i++) {
    Bytes block = blockOf(w, p, i);
    vec2 s = w.kind == PLAIN ? vec2(0.0) : scaleOf(w, p, i, o);
    int width = min(w.group, w.cols - i * w.group);
    for (int k0 = 0; k0 < width; k0 += 64) {
      int n = min(64, width - k0);
      for (int k = slot; k < n; k += 8) panel[k][o] = codedAt(w, block, s, k0 + k, o);
      barrier();
      if (mine) {
        int from = x + i * w.group + k0;
        for (int k = 0; k + 1 < n; k += 2) {
          even = fused(g.x.v[from + k], panel[k][o], even);
          odd = fused(g.x.v[from + k + 1], panel[k + 1][o], odd);
        }
        if ((n & 1) == 1) even = fused(g.x.v[from + n - 1], panel[n - 1][o], even);
      }
      barrier();
    }
  }
  if (mine) put(first + slot, tile * 16 + o, add(even, odd));
}
