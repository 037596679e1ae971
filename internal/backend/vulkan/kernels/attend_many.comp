#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "bits.glsl"
#include "memory.glsl"
#include "attend.glsl"
// Kernel attend_many: attend for many rows over pages of halves, with keys and values of at most 256 numbers, keys a multiple of 32.
// A workgroup has a head of 16 rows of a sequence, which share what is loaded of a page.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args { Call call; Layer a; } g;
const int QUERIES = 16, WIDE = 256, PART = 32;
shared vec4 query[QUERIES][WIDE / 4];
shared vec4 panel[PAGE][PART / 4 + 1];   // columns of keys
shared vec4 scores[QUERIES][PAGE / 4];   // and softmax weights
shared float lanes[QUERIES][16], tops[QUERIES], weights[QUERIES], mores[QUERIES], olds[QUERIES];
shared ivec2 sees[QUERIES];              // positions
shared uint faints[QUERIES], faintWeights[QUERIES]; // a number is too small for chains without tests

// slowScore is a product of a query with a key with every operation tested.
float slowScore(int n, uint64_t key) {
  float s[16];
  for (int l = 0; l < 16; l++) {
    s[l] = 0.0;
    for (int c = l; c < g.a.key; c += 16) s[l] = fused(query[n][c / 4][c & 3], f16(uint(Halves(key).v[c])), s[l]);
  }
  for (int w = 8; w > 0; w >>= 1)
    for (int l = 0; l < w; l++) s[l] = add(s[l], s[l + w]);
  return s[0];
}

// keysAt is four numbers of a key of the page, of those that a thread brings to shared memory.
uvec2 keysAt(uint64_t rows, int m, int c0) {
  int i = int(gl_LocalInvocationID.x) + 256 * m;
  return Twos(rows + uint64_t(2 * (i / (PART / 4) * g.a.key + c0 + 4 * (i % (PART / 4))))).v[0];
}

// valuesAt is column t of four values of the page.
uvec4 valuesAt(uint64_t rows, int k, int t) {
  uvec4 v;
  [[unroll]] for (int l = 0; l < 4; l++) v[l] = uint(Halves(rows).v[(k + l) * g.a.value + t]);
  return v;
}

void main() {
  Layer a = g.a;
  int t = int(gl_LocalInvocationID.x), h = int(gl_WorkGroupID.x), first = int(gl_WorkGroupID.y), owner = g.call.rowSeq.v[first];
  if (owner < 0) return;
  Seq s = g.call.seq.v[owner];
  if ((first - s.first) % QUERIES != 0) return;
  int rows = min(QUERIES, s.n - (first - s.first)), kv = h / (a.heads / a.kvHeads), keys = a.key, values = a.value, last = 0, page0 = 1 << 30, whole0 = 0, whole1 = 1 << 30; // positions that some rows see, and that all do
  if (t < QUERIES) {
    int pos = s.pos + first + t - s.first;
    sees[t] = t < rows ? ivec2(a.window > 0 ? max(0, pos + 1 - a.window) : 0, min(s.pos + s.n, pos + a.ahead)) : ivec2(0);
    faints[t] = 0u, tops[t] = uintBitsToFloat(0xff800000u), weights[t] = 0.0;
  }
  barrier();
  for (int i = t; i < QUERIES * keys / 4; i += 256) {
    int n = i / (keys / 4), c = i % (keys / 4);
    vec4 x = vec4(0.0);
    if (n < rows)
      for (int k = 0; k < 4; k++) {
        float y = a.floats.v[((first + n) * a.heads + h) * keys + 4 * c + k];
        x[k] = y;
        if (faint(y)) faints[n] = 1u;
      }
    query[n][c] = x;
  }
  for (int n = 0; n < rows; n++) {
    last = max(last, sees[n].y), page0 = min(page0, sees[n].x / PAGE);
    whole0 = max(whole0, sees[n].x), whole1 = min(whole1, sees[n].y);
  }
  float sums[QUERIES];
  [[unroll]] for (int n = 0; n < QUERIES; n++) sums[n] = 0.0;
  int x = t & 31, y = t / 32; // queries y and y+8, positions x and x+32
  for (int p = page0; p * PAGE < last; p++) {
    uint64_t page = g.call.page.v[s.pages + p];
    uint64_t rows0 = uint64_t(rowsOf(a, page, 0, kv)), rows1 = uint64_t(rowsOf(a, page, 1, kv));
    float acc[2][2][16];
    [[unroll]] for (int i = 0; i < 2; i++)
      [[unroll]] for (int j = 0; j < 2; j++)
        [[unroll]] for (int l = 0; l < 16; l++) acc[i][j][l] = 0.0;
    uvec2 next[PAGE * PART / 1024];
    [[unroll]] for (int m = 0; m < PAGE * PART / 1024; m++) next[m] = keysAt(rows0, m, 0);
    for (int c0 = 0; c0 < keys; c0 += PART) {
      barrier();
      [[unroll]] for (int m = 0; m < PAGE * PART / 1024; m++) {
        int i = t + 256 * m;
        panel[i / (PART / 4)][i % (PART / 4)] = vec4(half_(next[m].x & 0xffffu), half_(next[m].x >> 16), half_(next[m].y & 0xffffu), half_(next[m].y >> 16));
      }
      barrier();
      if (c0 + PART < keys)
        [[unroll]] for (int m = 0; m < PAGE * PART / 1024; m++) next[m] = keysAt(rows0, m, c0 + PART);
      [[dont_unroll]] for (int c = 0; c < PART; c += 16) {
        [[unroll]] for (int q = 0; q < 4; q++) {
          vec4 u0 = query[y][(c0 + c) / 4 + q], u1 = query[y + 8][(c0 + c) / 4 + q], k0 = panel[x][c / 4 + q], k1 = panel[x + 32][c / 4 + q];
          [[unroll]] for (int l = 0; l < 4; l++) {
            acc[0][0][4 * q + l] = fusedPlain(u0[l], k0[l], acc[0][0][4 * q + l]);
            acc[0][1][4 * q + l] = fusedPlain(u0[l], k1[l], acc[0][1][4 * q + l]);
            acc[1][0][4 * q + l] = fusedPlain(u1[l], k0[l], acc[1][0][4 * q + l]);
            acc[1][1][4 * q + l] = fusedPlain(u1[l], k1[l], acc[1][1][4 * q + l]);
          }
        }
      }
    }
    [[unroll]] for (int i = 0; i < 2; i++)
      [[unroll]] for (int j = 0; j < 2; j++) {
        int n = y + 8 * i, k = x + 32 * j;
        [[unroll]] for (int w = 8; w > 0; w >>= 1)
          [[unroll]] for (int l = 0; l < w; l++) acc[i][j][l] = add(acc[i][j][l], acc[i][j][l + w]);
        scores[n][k / 4][k & 3] = mul(acc[i][j][0], a.scale);
      }
    if (LEVEL >= 3u)
      [[dont_unroll]] for (int m = 0; m < 4; m++) {
        int n = y + 8 * (m & 1), k = x + 32 * (m / 2);
        if (faints[n] != 0u) scores[n][k / 4][k & 3] = mul(slowScore(n, rows0 + uint64_t(2 * k * keys)), a.scale);
      }
    barrier();
    // A query has 16 threads here.
    int n = t / 16, lane = t & 15, from = max(0, sees[n].x - p * PAGE), to = min(PAGE, sees[n].y - p * PAGE);
    bool visible = p >= sees[n].x / PAGE && to > from, begins = p == sees[n].x / PAGE;
    float highest = uintBitsToFloat(0xff800000u), own[4];
    for (int k = from; k < to; k++) {
      float score = scores[n][k / 4][k & 3];
      if (score > highest) highest = score;
    }
    for (int i = 0; i < 4; i++) {
      int k = lane + 16 * i;
      own[i] = visible && k >= from && k < to ? expDown(sub(scores[n][k / 4][k & 3], highest)) : 0.0;
    }
    if (lane == 0) faintWeights[n] = 0u;
    barrier();
    for (int i = 0; i < 4; i++) {
      int k = lane + 16 * i;
      scores[n][k / 4][k & 3] = own[i];
      if ((floatBitsToUint(own[i]) << 1) - 1u < (48u << 24) - 1u) faintWeights[n] = 1u; // below 2^-79
    }
    barrier();
    float sum = 0.0;
    for (int i = 0; i < 4; i++) {
      int k = from + lane + 16 * i;
      float e = k < PAGE ? scores[n][k / 4][k & 3] : 0.0;
      sum = i == 0 ? e : add(sum, e);
    }
    lanes[n][lane] = sum;
    for (int w = 8; w > 0; w >>= 1) {
      barrier();
      if (lane < w) lanes[n][lane] = add(lanes[n][lane], lanes[n][lane + w]);
    }
    barrier();
    if (lane == 0) {
      float now = lanes[n][0], more = 1.0, old = 0.0;
      if (visible && begins) {
        weights[n] = now, tops[n] = highest;
      } else if (visible) {
        float all = highest > tops[n] ? highest : tops[n];
        old = expDown(sub(tops[n], all)), more = expDown(sub(highest, all));
        weights[n] = fused(now, more, mul(weights[n], old)), tops[n] = all;
      }
      mores[n] = more, olds[n] = visible ? begins ? 2.0 : old : -1.0; // 2: the first page, -1: none of the query's
    }
    barrier();
    if (t < values) {
      float parts[QUERIES];
      [[unroll]] for (int n = 0; n < QUERIES; n++) parts[n] = 0.0;
      int end = min(PAGE, last - p * PAGE);
      bool whole = p * PAGE >= whole0 && (p + 1) * PAGE <= whole1;
      uvec4 ahead = valuesAt(rows1, 0, t);
      [[dont_unroll]] for (int k = 0; k < end; k += 4) {
        vec4 v;
        [[unroll]] for (int l = 0; l < 4; l++) v[l] = half_(ahead[l]);
        ahead = valuesAt(rows1, min(k + 4, PAGE - 4), t);
        if (whole) {
          [[unroll]] for (int n = 0; n < QUERIES; n++) {
            vec4 e = scores[n][k / 4];
            [[unroll]] for (int l = 0; l < 4; l++) parts[n] = fusedPlain(e[l], v[l], parts[n]);
          }
          continue;
        }
        [[unroll]] for (int n = 0; n < QUERIES; n++) {
          vec4 e = scores[n][k / 4];
          int from = sees[n].x - p * PAGE, to = sees[n].y - p * PAGE;
          [[unroll]] for (int l = 0; l < 4; l++)
            if (k + l >= from && k + l < to) parts[n] = fusedPlain(e[l], v[l], parts[n]);
        }
      }
      uint tested = 0u; // queries whose operations are tested, one after another: the tests are long
      [[unroll]] for (int n = 0; n < QUERIES; n++) {
        float old = mul(sums[n], olds[n]), sum = fusedPlain(parts[n], mores[n], old);
        bool begins = olds[n] == 2.0;
        if (LEVEL >= 3u && olds[n] >= 0.0 && (faintWeights[n] != 0u || !begins && (small(parts[n]) || small(mores[n]) || small(old) || tiny(sum)))) tested |= 1u << n;
        else if (olds[n] >= 0.0) sums[n] = begins ? parts[n] : sum;
      }
      if (LEVEL >= 3u && tested != 0u)
        [[dont_unroll]] for (int n = 0; n < QUERIES; n++) {
          if ((tested >> n & 1u) == 0u) continue;
          float part_ = 0.0, sum = 0.0;
          [[unroll]] for (int m = 0; m < QUERIES; m++)
            if (m == n) part_ = parts[m], sum = sums[m];
          if (faintWeights[n] != 0u) {
            part_ = 0.0;
            int from = max(0, sees[n].x - p * PAGE), to = min(PAGE, sees[n].y - p * PAGE);
            [[dont_unroll]] for (int k = from; k < to; k++) part_ = fused(scores[n][k / 4][k & 3], f16(uint(Halves(rows1).v[k * values + t])), part_);
          }
          sum = olds[n] == 2.0 ? part_ : fused(part_, mores[n], mul(sum, olds[n]));
          [[unroll]] for (int m = 0; m < QUERIES; m++)
            if (m == n) sums[m] = sum;
        }
    }
    barrier();
  }
  if (t < values) {
    [[unroll]] for (int n = 0; n < QUERIES; n++) query[n][t / 4][t & 3] = sums[n]; // the queries are not needed any more
    for (int n = 0; n < rows; n++) {
      int r = first + n;
      float v = quot(query[n][t / 4][t & 3], weights[n]);
      if (a.gate != 0) v = mul(v, sigmoid32(a.q.v[r * a.qStride + h * a.head + keys + t]));
      a.dst.v[r * a.dstStride + h * values + t] = v;
    }
  }
}
