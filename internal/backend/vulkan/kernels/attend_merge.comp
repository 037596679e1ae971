#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "bits.glsl"
#include "memory.glsl"
#include "attend.glsl"
// Kernel attend_merge: merges the pages of a query of a head in their order, as kernel attend does without SPLIT.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args { Call call; Layer a; Floats parts; int most; } g;
const int BATCH = 256, LOADS = 16; // pages: in shared memory, and whose sums are loaded at once
shared float stash[LOADS][256];    // of these
shared float tops[BATCH + 1], nows[BATCH], olds[BATCH], mores[BATCH], scaled[BATCH]; // of weights by scaled, of values by mores

void main() {
  Layer a = g.a;
  int i = int(gl_LocalInvocationID.x), h = int(gl_WorkGroupID.x), r = int(gl_WorkGroupID.y), owner = g.call.rowSeq.v[r], size = a.value + 3;
  if (owner < 0) return;
  Seq s = g.call.seq.v[owner];
  int pos = s.pos + r - s.first, end = min(s.pos + s.n, pos + a.ahead), begin = a.window > 0 ? max(0, pos + 1 - a.window) : 0;
  int pages = (end + PAGE - 1) / PAGE - begin / PAGE, from = (r * a.heads + h) * g.most * size;
  bool coded = isCoded(a);
  float sums[2] = float[](0.0, 0.0), weight = 0.0;
  if (i == 0) tops[0] = uintBitsToFloat(0xff800000u);
  for (int p0 = 0; p0 < pages; p0 += BATCH) {
    int n = min(BATCH, pages - p0);
    barrier();
    float highest = 0.0, step_ = 1.0;
    if (i < n) {
      highest = g.parts.v[from + (p0 + i) * size], nows[i] = g.parts.v[from + (p0 + i) * size + 1], step_ = g.parts.v[from + (p0 + i) * size + 2];
      olds[i] = highest;
    }
    barrier();
    if (i == 0)
      for (int p = 0; p < n; p++) tops[p + 1] = p0 + p == 0 && !coded || olds[p] > tops[p] ? olds[p] : tops[p];
    barrier();
    if (i < n) {
      olds[i] = expDown(sub(tops[i], tops[i + 1]));
      float more = expDown(sub(highest, tops[i + 1]));
      mores[i] = coded ? mul(more, step_) : more;
      scaled[i] = more;
    }
    barrier();
    for (int k = 0; k < 2 && i + 256 * k < a.value; k++)
      for (int p1 = 0; p1 < n; p1 += LOADS) {
        float v[LOADS];
        [[unroll]] for (int j = 0; j < LOADS; j++) v[j] = g.parts.v[from + (p0 + min(p1 + j, n - 1)) * size + 3 + i + 256 * k];
        [[unroll]] for (int j = 0; j < LOADS; j++) stash[j][i] = v[j];
        [[dont_unroll]] for (int p = p1; p < min(n, p1 + LOADS); p++) {
          bool first = p0 + p == 0 && !coded;
          if (k == 0) weight = first ? nows[p] : fused(nows[p], scaled[p], mul(weight, olds[p]));
          sums[k] = first ? stash[p - p1][i] : fused(stash[p - p1][i], mores[p], mul(sums[k], olds[p]));
        }
      }
    barrier();
    if (i == 0) tops[0] = tops[n];
  }
  for (int k = 0; k < 2; k++) {
    int d = i + 256 * k;
    if (d >= a.value) break;
    float v = quot(sums[k], weight);
    if (a.gate != 0) v = mul(v, sigmoid32(a.q.v[r * a.qStride + h * a.head + a.key + a.tail + d]));
    a.dst.v[r * a.dstStride + h * a.value + d] = v;
  }
}
