#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "draw.glsl"
// Kernel draw_top: the greatest key of a part of a row. The levels of the row are cleared.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args { Floats x; Draws draws; Uints masks; Addresses tops; Histogram bins; int stride, words; } g;
void main() {
  int t = int(gl_LocalInvocationID.x), p = int(gl_WorkGroupID.x), parts = int(gl_NumWorkGroups.x), r = int(gl_WorkGroupID.y);
  Draw d = g.draws.of[r];
  for (int i = p * 256 + t; i < LEVELS; i += parts * 256) g.bins.of[r].counts[i] = 0u, g.bins.of[r].low[i] = 0u, g.bins.of[r].high[i] = 0u;
  uint64_t top = 0;
  for (int from = p * PART; from < d.cols; from += parts * PART)
    for (int c = from + t; c < from + PART; c += 256) {
      uint64_t key = keyOf(counted(g.x, r * g.stride, c, d, g.masks, g.words), c);
      if (key > top) top = key;
    }
  top = greatest(top);
  if (t == 0) g.tops.v[r * parts + p] = top;
}
