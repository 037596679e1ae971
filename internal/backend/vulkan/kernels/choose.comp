#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "experts.glsl"
#include "lanes.glsl"
// Kernel choose: ranks and weighs the experts of a row, as chooseExperts and chooseByScores of the CPU. A workgroup has a row.
// Groups of experts other than the best are left out. Sums of exponentials are those of 16 lanes.
layout(local_size_x = 64) in;
layout(push_constant, scalar) uniform Args {
  Floats logits, bias, factors, weights; // bias and factors: or none; weights: [rows][topK]
  Ints chosen;                           // likewise
  int stride, experts, topK, sigmoid, groups, topGroups, normalize;
  float scale; // 1: none
} g;
shared float scores[EXPERTS], keys[EXPERTS], sums[EXPERTS];
shared int picked[EXPERTS], best[EXPERTS];
shared uint order[EXPERTS], top;
shared int where, strange;

// orderOf orders numbers as integers: zeros of both signs are equal, and NaN is 0. Comparisons of floats may flush.
uint orderOf(float x) {
  uint b = floatBitsToUint(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return 0u;
  if (b == 0x80000000u) b = 0u;
  return b ^ ((b >> 31) == 1u ? 0xffffffffu : 0x80000000u);
}

// insertKey is a step of rank of the CPU: number i with its order, after n that are ranked.
#define INSERT(list, n, k, orders, from, i)                                                              \
  {                                                                                                      \
    int j = n;                                                                                           \
    while (j > 0 && orders[from + i] != 0u && orders[from + list[j - 1]] != 0u && orders[from + i] > orders[from + list[j - 1]]) j--; \
    if (j < k) {                                                                                         \
      n = min(n + 1, k);                                                                                 \
      for (int m = n - 1; m > j; m--) list[m] = list[m - 1];                                             \
      list[j] = i;                                                                                       \
    }                                                                                                    \
  }

// softmax replaces n scores by exp(score - highest) and returns their sum.
#define SOFTMAX(x, n, total)                                                          \
  {                                                                                   \
    barrier();                                                                        \
    if (t == 0) top = 0u;                                                             \
    barrier();                                                                        \
    for (int i = t; i < n; i += 64) atomicMax(top, orderOf(x[i]));                    \
    barrier();                                                                        \
    float highest = uintBitsToFloat(top == 0u ? 0xff800000u : (top >> 31) == 1u ? top ^ 0x80000000u : ~top); \
    for (int i = t; i < n; i += 64) x[i] = exp32(sub(x[i], highest));                 \
    barrier();                                                                        \
    float part = 0.0;                                                                 \
    if (t < 16)                                                                       \
      for (int i = t; i < n; i += 16) part = add(part, x[i]);                         \
    total = sum16(part);                                                              \
  }

// leaveOut makes the keys of all but the best groups minus infinity. Groups are ranked by the sum of their two highest keys.
void leaveOut(int t, int n) {
  int size = n / g.groups;
  for (int i = t; i < n; i += 64) order[i] = orderOf(keys[i]);
  barrier();
  for (int i = t; i < g.groups; i += 64) {
    int two[2], count = 0;
    for (int k = 0; k < size; k++) INSERT(two, count, min(2, size), order, i * size, k)
    float sum = add(0.0, keys[i * size + two[0]]);
    if (size > 1) sum = add(sum, keys[i * size + two[1]]);
    sums[i] = sum;
  }
  barrier();
  for (int i = t; i < g.groups; i += 64) order[i] = orderOf(sums[i]);
  barrier();
  if (t == 0) {
    int count = 0;
    for (int i = 0; i < g.groups; i++) INSERT(best, count, g.topGroups, order, 0, i)
  }
  barrier();
  for (int i = t; i < n; i += 64) {
    bool stays = false;
    for (int j = 0; j < g.topGroups; j++) stays = stays || best[j] == i / size;
    if (!stays) keys[i] = uintBitsToFloat(0xff800000u);
  }
  barrier();
}

// rank writes the indices of the highest keys, the lower first among equals. Numbers that are not one have no rank, and are inserted
// one by one as the CPU does.
void rank(int t, int n) {
  if (t == 0) strange = 0;
  barrier();
  for (int i = t; i < n; i += 64) {
    order[i] = orderOf(keys[i]);
    if (order[i] == 0u) strange = 1;
  }
  barrier();
  if (strange != 0) {
    if (t == 0) {
      int count = 0;
      for (int i = 0; i < n; i++) INSERT(picked, count, g.topK, order, 0, i)
    }
    barrier();
    return;
  }
  for (int j = 0; j < g.topK; j++) {
    if (t == 0) top = 0u, where = n;
    barrier();
    uint own = 0u;
    for (int i = t; i < n; i += 64) own = max(own, order[i]);
    atomicMax(top, own);
    barrier();
    if (own == top)
      for (int i = t; i < n; i += 64)
        if (order[i] == top) atomicMin(where, i);
    barrier();
    if (t == 0) picked[j] = where, order[where] = 0u;
    barrier();
  }
}

void main() {
  int t = int(gl_LocalInvocationID.x), row = int(gl_WorkGroupID.x), n = g.experts, k = g.topK;
  bool plain = g.sigmoid == 0 && none(g.bias) && g.groups <= 1;
  for (int i = t; i < n; i += 64) {
    float x = g.logits.v[row * g.stride + i];
    scores[i] = g.sigmoid != 0 ? sigmoid32(x) : x;
  }
  barrier();
  float total = 0.0;
  if (!plain && g.sigmoid == 0) {
    SOFTMAX(scores, n, total)
    for (int i = t; i < n; i += 64) scores[i] = quot(scores[i], total);
  }
  for (int i = t; i < n; i += 64) keys[i] = none(g.bias) ? scores[i] : add(scores[i], g.bias.v[i]);
  barrier();
  if (g.groups > 1) leaveOut(t, n);
  rank(t, n);
  if (plain && g.normalize == 0) SOFTMAX(scores, n, total)
  for (int j = t; j < k; j += 64) keys[j] = scores[picked[j]];
  barrier();
  if (!plain) {
    total = 0.0;
    for (int j = 0; j < k; j++) total = add(total, keys[j]);
    total = g.normalize != 0 ? add(total, 1e-20) : 1.0;
  } else if (g.normalize != 0) {
    SOFTMAX(keys, k, total)
  }
  for (int j = t; j < k; j += 64) {
    float w = quot(keys[j], total);
    if (g.scale != 1.0) w = mul(w, g.scale);
    if (!none(g.factors)) w = mul(w, g.factors.v[picked[j]]);
    g.weights.v[row * k + j] = w;
    g.chosen.v[row * k + j] = picked[j];
  }
}
