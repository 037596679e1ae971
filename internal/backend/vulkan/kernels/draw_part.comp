#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "draw.glsl"
// Kernel draw_part: Gumbel-max sampling among the levels that the filters keep: the highest sum of score and noise of a part of a row.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args { Floats x; Draws draws; Uints masks; Addresses tops; Histogram bins; Sums sums; Cuts cuts; Floats tokens; int stride, words, tokenStride; } g;
shared int last, partial;
shared uint64_t keptUpTo, running[256];

uint64_t noiseOf(uint64_t stream, int id) {
  uint64_t x = stream + (uint64_t(id) + 1) * 0x9e3779b97f4a7c15ul;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ul;
  x = (x ^ x >> 27) * 0x94d049bb133111ebul;
  return x ^ x >> 31;
}
Wide gumbel(uint64_t noise) {
  Wide u = plus(wideOf(noise >> 12), wide(0x3fe0000000000000ul));
  u.e -= 52;
  for (int i = 0; i < 2; i++) u = minus(log64(u));
  return u;
}

// runningSum is the sum over the threads up to this one.
uint64_t runningSum(uint64_t x) {
  uint i = gl_LocalInvocationIndex;
  barrier();
  running[i] = x;
  for (uint w = 1u; w < 256u; w <<= 1) {
    barrier();
    uint64_t below = i >= w ? running[i - w] : uint64_t(0);
    barrier();
    running[i] += below;
  }
  barrier();
  return running[i];
}

// cut finds where the filters end: see Drawer.cut of package sampling. A thread has three levels.
void cut(Draw d, int r) {
  int t = int(gl_LocalInvocationID.x), n[3], all = 0;
  uint64_t mass[3], mine = 0, low = ~uint64_t(0), high = low;
  for (int i = 0; i < 3; i++) {
    int level = 3 * t + i;
    n[i] = 0, mass[i] = 0;
    if (level < LEVELS) {
      n[i] = int(g.bins.of[r].counts[level]);
      mass[i] = massOf(g.draws, level, uint64_t(g.bins.of[r].high[level]) << 32 | uint64_t(g.bins.of[r].low[level]));
    }
    all += n[i];
    mine += mass[i];
  }
  if (t == 0) last = LEVELS - 1, partial = d.most < 0x7fffffff ? 0 : LEVELS;
  int before = int(runningSum(uint64_t(all))) - all;
  if (d.share > 0 && d.share < 0x3ff0000000000000ul) {
    uint64_t within = 0;
    int left = max(d.most - before, 0);
    for (int i = 0; i < 3; i++) {
      within += left >= n[i] ? mass[i] : massOf(g.draws, 3 * t + i, uint64_t(left) << 19);
      left -= min(n[i], left);
    }
    runningSum(within);
    uint64_t total = running[255], goal = whole(times(wide(d.share), wideOf(total)));
    low = goal - min(goal, total >> 16);
    high = goal + (total >> 16);
  }
  uint64_t kept = runningSum(mine) - mine;
  int final_ = LEVELS, reject = LEVELS;
  for (int i = 0; i < 3; i++) {
    int level = 3 * t + i;
    before += n[i];
    kept += mass[i];
    mass[i] = kept;
    bool least = level + 1 == d.levels && d.levels < LEVELS;
    if (before >= d.most || kept >= high || least) final_ = min(final_, level);
    if (kept >= low || least) reject = min(reject, level);
  }
  if (final_ < LEVELS) atomicMin(last, final_);
  if (reject < LEVELS) atomicMin(partial, reject);
  barrier();
  for (int i = 0; i < 3; i++)
    if (3 * t + i == last) keptUpTo = mass[i];
  barrier();
}

void main() {
  int t = int(gl_LocalInvocationID.x), p = int(gl_WorkGroupID.x), parts = int(gl_NumWorkGroups.x), r = int(gl_WorkGroupID.y);
  Draw d = g.draws.of[r];
  uint64_t top = greatest(t < parts ? g.tops.v[r * parts + t] : uint64_t(0));
  cut(d, r);
  if (t == 0 && p == 0) g.cuts.of[r] = Cut(keptUpTo, partial, 0);
  int likely = int(~uint(top)), best = -1;
  uint64_t sum = 0;
  if (top != 0 && d.inverse == 0) {
    if (t == 0 && p == 0) best = likely;
  } else if (top != 0) {
    Wide peak = wideFloat(logitOf(top)), inverse = wide(d.inverse);
    float summit = logitOf(top), slope = narrow(inverse), reach = 0.0; // a sum below reach cannot be the highest
    for (int i = -1, c = likely; i < 0 || c < d.cols; i++, c = (p + i / 4 * parts) * PART + i % 4 * 256 + t) { // first the most likely id
      float z = i < 0 ? summit : counted(g.x, r * g.stride, c, d, g.masks, g.words);
      if (ordered(z) < LOWEST || levelOf(down(peak, z, d.steps)) > last) continue;
      z = unordered(min(ordered(z), HIGHEST));
      uint64_t h = noiseOf(d.noise, none(g.tokens) ? c : int(g.tokens.v[r * g.tokenStride + c]));
      // The noise is at most ln 2 times the leading ones and one more; the score is rounded here, by less than 2^-20 of it.
      float score = mul(sub(z, summit), slope), most = mul(float(64 - highest(~h)), 0.69315);
      if (i >= 0 && add(add(score, most), add(0.001, mul(magnitude(score), 0.000001))) < reach) continue;
      Wide all = plus(times(plus(wideFloat(z), minus(peak)), inverse), gumbel(h));
      float about = narrow(all);
      if (i < 0 || about > reach) reach = about;
      uint64_t o = order(all);
      if (i >= 0 && (best < 0 || o > sum || o == sum && c < best)) sum = o, best = c;
    }
  }
  // The highest sum of the threads, then the lowest column that has it.
  uint64_t most = greatest(best < 0 ? uint64_t(0) : sum);
  uint64_t first = greatest(best >= 0 && sum == most ? uint64_t(~uint(best)) : uint64_t(0));
  if (t == 0) g.sums.of[r * parts + p] = Sum(most, first == 0 ? -1 : int(~uint(first)), 0);
}
