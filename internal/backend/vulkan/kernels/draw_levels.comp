#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "draw.glsl"
// Kernel draw_levels: counts and weights of the levels of a part of a row, which has at most 4096 columns.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args { Floats x; Draws draws; Uints masks; Addresses tops; Histogram bins; int stride, words; } g;
shared uint counts[LEVELS], shares[LEVELS];
void main() {
  int t = int(gl_LocalInvocationID.x), p = int(gl_WorkGroupID.x), parts = int(gl_NumWorkGroups.x), r = int(gl_WorkGroupID.y);
  Draw d = g.draws.of[r];
  for (int i = t; i < LEVELS; i += 256) counts[i] = 0u, shares[i] = 0u;
  uint64_t top = greatest(t < parts ? g.tops.v[r * parts + t] : uint64_t(0));
  if (top == 0) return;
  Wide peak = wideFloat(logitOf(top));
  for (int from = p * PART; from < d.cols; from += parts * PART)
    for (int c = from + t; c < from + PART; c += 256) {
      float z = counted(g.x, r * g.stride, c, d, g.masks, g.words);
      if (ordered(z) < LOWEST) continue;
      Wide steps = down(peak, z, d.steps);
      int level = levelOf(steps);
      if (level >= LEVELS) continue;
      atomicAdd(counts[level], 1u);
      atomicAdd(shares[level], shareOf(steps, level));
    }
  barrier();
  for (int i = t; i < LEVELS; i += 256) {
    if (counts[i] == 0u) continue;
    atomicAdd(g.bins.of[r].counts[i], counts[i]);
    uint before = atomicAdd(g.bins.of[r].low[i], shares[i]);
    if (before + shares[i] < before) atomicAdd(g.bins.of[r].high[i], 1u);
  }
}
