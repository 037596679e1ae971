#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "draw.glsl"
// Kernel best_row: the greatest keys of all parts of a row: columns, ascending, and their numbers. Places without a key repeat the lowest column.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args { Floats x; Addresses tops; Floats ids; Floats best; int stride, parts, n, idStride, bestStride; } g;
shared int found[256];
void main() {
  int t = int(gl_LocalInvocationID.x), r = int(gl_WorkGroupID.x), from = (r * g.parts + t) * g.n, at = 0, count = 0;
  uint64_t mine = t < g.parts ? g.tops.v[from] : uint64_t(0);
  for (; count < g.n; count++) {
    uint64_t top = greatest(mine);
    if (top == 0) break;
    if (t == 0) found[count] = int(~uint(top));
    if (mine == top) {
      at++;
      mine = at < g.n ? g.tops.v[from + at] : uint64_t(0);
    }
  }
  barrier();
  if (t >= g.n) return;
  int place = t < count ? 0 : t, lowest = count > 0 ? 0x7fffffff : 0;
  for (int i = 0; i < count; i++) {
    lowest = min(lowest, found[i]);
    if (t < count && found[i] < found[t]) place++;
  }
  int id = t < count ? found[t] : lowest;
  g.ids.v[r * g.idStride + place] = float(id);
  g.best.v[r * g.bestStride + place] = t < count ? g.x.v[r * g.stride + id] : uintBitsToFloat(0xff800000u);
}
