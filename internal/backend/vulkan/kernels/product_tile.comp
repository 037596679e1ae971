#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "bits.glsl"
#include "memory.glsl"
#include "weight.glsl"
#include "experts.glsl"
// Kernel product_tile: products of many rows by integer dot products. A thread of 256 has BREADTH outputs, 16 apart, of DEEP rows, 16 apart.
layout(constant_id = 8) const int DEEP = 4;
layout(constant_id = 9) const int BREADTH = 8;
const int ROWS = 16 * DEEP, OUTPUTS = 16 * BREADTH;
#include "tile.glsl"
void main() {
  float acc[DEEP][BREADTH];
  [[unroll]] for (int i = 0; i < DEEP; i++)
    [[unroll]] for (int j = 0; j < BREADTH; j++) acc[i][j] = 0.0;
  int x = self() & 15, y = self() / 16, all = GROUP * g.groups, buffer_ = 0;
  if (self() == 0) faints = 0u;
  barrier();
  if (LEVEL != 2u) {
    place();
    fetch(0);
    store(0);
    barrier();
    for (int first = 0; first < all; first += STAGE) {
      bool more = first + STAGE < all;
      if (more) fetch(first + STAGE);
      for (int slot = 0; slot < SLOTS; slot++) {
        if (first + slot * GROUP >= all) break;
        int sums[DEEP][BREADTH];
        [[unroll]] for (int i = 0; i < DEEP; i++)
          [[unroll]] for (int j = 0; j < BREADTH; j++) sums[i][j] = 0;
        [[dont_unroll]] for (int k = 0; k < WIDE; k++) {
          uvec4 a[DEEP];
          [[unroll]] for (int i = 0; i < DEEP; i++) a[i] = rowCodes[(buffer_ * ROWS + y + 16 * i) * STRIDE + slot * WIDE + k];
          [[unroll]] for (int j = 0; j < BREADTH; j++) {
            uvec4 b = outputCodes[(buffer_ * OUTPUTS + x + 16 * j) * STRIDE + slot * WIDE + k];
            [[unroll]] for (int i = 0; i < DEEP; i++) sums[i][j] += DOT(a[i].x, b.x) + DOT(a[i].y, b.y) + DOT(a[i].z, b.z) + DOT(a[i].w, b.w);
          }
        }
        [[unroll]] for (int j = 0; j < BREADTH; j++) {
          vec2 scale = outputScales[(buffer_ * SLOTS + slot) * OUTPUTS + x + 16 * j];
          [[unroll]] for (int i = 0; i < DEEP; i++) {
            int r = y + 16 * i;
            if (TOTALS) sums[i][j] += addend(buffer_, slot, r, scale);
            acc[i][j] = link(float(sums[i][j]), rowTails[(buffer_ * SLOTS + slot) * ROWS + r], scale, acc[i][j]);
          }
        }
      }
      if (BUFFERS == 1) barrier();
      buffer_ = BUFFERS - 1 - buffer_;
      if (more) store(buffer_);
      barrier();
    }
  }
  if (again()) {
    [[dont_unroll]] for (int i = 0; i < DEEP * BREADTH; i++) putTile(y + 16 * (i % DEEP), x + 16 * (i / DEEP), 0.0, true);
    return;
  }
  [[unroll]] for (int j = 0; j < BREADTH; j++)
    [[unroll]] for (int i = 0; i < DEEP; i++) putTile(y + 16 * i, x + 16 * j, acc[i][j], false);
}
