#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "top.glsl"
// Kernel top_list: the K-th highest maximum of a row, digit by digit, and all numbers that are no less, in any order. A workgroup has a row.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args { Floats x; Asks asks; Uints maxima; Floats sums; Answers answers; List listed; int stride, blocks, room; } g;
const int AT_ONCE = 2048; // blocks
shared int bins[256], upto[256], found[AT_ONCE], numbers, want, count, high;
shared uint cut, top;
shared float parts[256];
void main() {
  int t = int(gl_LocalInvocationID.x), r = int(gl_WorkGroupID.x), from = r * g.blocks;
  Ask a = g.asks.v[r];
  int n = (a.cols + BLOCK - 1) / BLOCK;
  if (a.k == 0) {
    if (t == 0) g.answers.v[r] = Answer(uintBitsToFloat(0x7f800000u), 0, 0.0, 0);
    return;
  }
  if (t == 0) numbers = 0, count = 0, cut = 0u, top = 0u, want = a.k;
  barrier();
  for (int b = t; b < n; b += 256) {
    uint o = g.maxima.v[from + b];
    if (o > LOWEST) atomicAdd(numbers, 1);
    atomicMax(top, o);
  }
  barrier();
  if (numbers < a.k) {
    if (t == 0) cut = LOWEST;
  } else {
    for (int shift = 24; shift >= 0; shift -= 8) {
      bins[t] = 0;
      barrier();
      uint prefix = cut;
      int goal = want;
      for (int b = t; b < n; b += 256) {
        uint o = g.maxima.v[from + b];
        if (shift == 24 || o >> (shift + 8) == prefix >> (shift + 8)) atomicAdd(bins[o >> shift & 255u], 1);
      }
      barrier();
      upto[t] = bins[t]; // and of all higher ones
      for (int w = 1; w < 256; w <<= 1) {
        barrier();
        int more = t + w < 256 ? upto[t + w] : 0;
        barrier();
        upto[t] += more;
      }
      barrier();
      int before = upto[t] - bins[t];
      if (before < goal && upto[t] >= goal) cut = prefix | uint(t) << shift, want = goal - before;
      barrier();
    }
  }
  barrier();
  uint low = min(cut, HIGHEST);
  for (int first = 0; first < n; first += AT_ONCE) {
    if (t == 0) high = 0;
    barrier();
    for (int b = first + t; b < min(n, first + AT_ONCE); b += 256)
      if (g.maxima.v[from + b] >= low) found[atomicAdd(high, 1)] = b;
    barrier();
    for (int i = t / BLOCK; i < high; i += 256 / BLOCK) {
      int id = found[i] * BLOCK + t % BLOCK;
      if (id >= a.cols) continue;
      float z = g.x.v[r * g.stride + id];
      if (ordered(z) < low) continue;
      int to = atomicAdd(count, 1);
      if (to < a.room) g.listed.v[r * g.room + to] = Listed(id, z);
    }
    barrier();
  }
  float sum = 0.0;
  if (a.sum != 0)
    for (int b = t; b < n; b += 256) sum = add(sum, mul(g.sums.v[from + b], share(g.maxima.v[from + b], min(top, HIGHEST))));
  parts[t] = sum;
  for (int w = 128; w > 0; w >>= 1) {
    barrier();
    if (t < w) parts[t] = add(parts[t], parts[t + w]);
  }
  if (t == 0) g.answers.v[r] = Answer(unordered(low), count, parts[0], 0);
}
