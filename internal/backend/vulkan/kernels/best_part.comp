#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "draw.glsl"
// Kernel best_part: the greatest keys of a part of a row, descending. A part has at most 4096 columns, 16 of each thread.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args { Floats x; Draws draws; Uints masks; Addresses tops; int stride, words, n; } g;
void main() {
  int t = int(gl_LocalInvocationID.x), p = int(gl_WorkGroupID.x), parts = int(gl_NumWorkGroups.x), r = int(gl_WorkGroupID.y);
  Draw d = g.draws.of[r];
  uint64_t own[16], mine = 0;
  for (int i = 0; i < 16; i++) {
    int c = (p + i / 4 * parts) * PART + i % 4 * 256 + t;
    own[i] = keyOf(counted(g.x, r * g.stride, c, d, g.masks, g.words), c);
    if (own[i] > mine) mine = own[i];
  }
  for (int k = 0; k < g.n; k++) {
    uint64_t top = greatest(mine);
    if (t == 0) g.tops.v[(r * parts + p) * g.n + k] = top;
    if (mine != top || top == 0) continue;
    mine = 0;
    for (int i = 0; i < 16; i++) {
      if (own[i] == top) own[i] = 0;
      if (own[i] > mine) mine = own[i];
    }
  }
}
