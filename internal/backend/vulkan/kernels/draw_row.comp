#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "draw.glsl"
// Kernel draw_row: of the candidates of the parts of a row the one with the highest sum: its id, probability, and 1 if the draw is exact.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args { Floats x; Draws draws; Addresses tops; Sums sums; Cuts cuts; Floats tokens; Floats dst; int stride, parts, tokenStride, dstStride; } g;
void main() {
  int t = int(gl_LocalInvocationID.x), r = int(gl_WorkGroupID.x), to = r * g.dstStride;
  Draw d = g.draws.of[r];
  uint64_t top = greatest(t < g.parts ? g.tops.v[r * g.parts + t] : uint64_t(0));
  Sum s = Sum(uint64_t(0), -1, 0);
  if (t < g.parts) s = g.sums.of[r * g.parts + t];
  uint64_t most = greatest(s.column < 0 ? uint64_t(0) : s.sum);
  uint64_t first = greatest(s.column >= 0 && s.sum == most ? uint64_t(~uint(s.column)) : uint64_t(0));
  if (t > 0) return;
  g.dst.v[to] = -1.0, g.dst.v[to + 1] = 0.0, g.dst.v[to + 2] = 0.0;
  if (first == 0) return;
  int column = int(~uint(first));
  Cut end = g.cuts.of[r];
  Wide steps = down(wideFloat(logitOf(top)), g.x.v[r * g.stride + column], d.steps);
  int level = levelOf(steps);
  uint64_t mass = massOf(g.draws, level, uint64_t(shareOf(steps, level)));
  g.dst.v[to] = none(g.tokens) ? float(column) : g.tokens.v[r * g.tokenStride + column];
  g.dst.v[to + 1] = narrow(over(wideOf(mass), wideOf(end.kept)));
  g.dst.v[to + 2] = level < end.partial ? 1.0 : 0.0;
}
