#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "bits.glsl"
#include "memory.glsl"
#include "weight.glsl"
#include "tile.glsl"
// Kernel product_tile: products of many rows by integer dot products. A thread has 8 outputs, 16 apart, of DEEP rows, 16 apart.
void main() {
  Weight w = g.w;
  float acc[DEEP][8];
  int sums[DEEP][8], totals[DEEP];
  [[unroll]] for (int i = 0; i < DEEP; i++) {
    totals[i] = 0;
    [[unroll]] for (int j = 0; j < 8; j++) acc[i][j] = 0.0, sums[i][j] = 0;
  }
  int x = self() & 15, y = self() / 16, group = w.group, all = group * w.groups, wide = min(group, STAGE) / 16;
  bool byWeight = w.first != 0, biased = w.kind == BIASED && w.zero == 0.0, adds = hasAddend(w);
  if (self() == 0) faints = 0u;
  if (LEVEL != 2u) {
    place(w);
    fetch(w, 0);
    for (int first = 0; first < all; first += STAGE) {
      barrier();
      store(w, first);
      barrier();
      if (first + STAGE < all) fetch(w, first + STAGE);
      [[dont_unroll]] for (int k = 0; k < STAGE / 16; k++) {
        uvec4 a[DEEP];
        [[unroll]] for (int i = 0; i < DEEP; i++) a[i] = rowCodes[(y + 16 * i) * STRIDE + k];
        if (adds)
          [[unroll]] for (int i = 0; i < DEEP; i++) totals[i] += partial[y + 16 * i][k];
        [[unroll]] for (int j = 0; j < 8; j++) {
          uvec4 b = outputCodes[(x + 16 * j) * STRIDE + k];
          [[unroll]] for (int i = 0; i < DEEP; i++) sums[i][j] += DOT(a[i].x, b.x) + DOT(a[i].y, b.y) + DOT(a[i].z, b.z) + DOT(a[i].w, b.w);
        }
        if ((first + 16 * k + 16) % group != 0 || first + 16 * k >= all) continue;
        int slot = k / wide;
        [[unroll]] for (int j = 0; j < 8; j++) {
          vec2 scale = outputScales[slot][x + 16 * j];
          [[unroll]] for (int i = 0; i < DEEP; i++) {
            int r = y + 16 * i, sum = sums[i][j];
            if (adds) sum += addend(w, scale) * totals[i];
            vec2 tail = rowTails[slot][r];
            float s = byWeight ? tail.x : tail.y;
            acc[i][j] = fusedPlain(mulPlain(float(sum), byWeight ? scale.x : tail.x), byWeight ? s : scale.x, acc[i][j]);
            if (biased) acc[i][j] = fusedPlain(scale.y, s, acc[i][j]);
            sums[i][j] = 0;
          }
        }
        [[unroll]] for (int i = 0; i < DEEP; i++) totals[i] = 0;
      }
    }
    barrier();
  }
  [[unroll]] for (int j = 0; j < 8; j++)
    [[unroll]] for (int i = 0; i < DEEP; i++) putTile(w, y + 16 * i, x + 16 * j, acc[i][j]);
}
