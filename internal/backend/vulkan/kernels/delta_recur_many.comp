#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "bits.glsl"
#include "memory.glsl"
#include "delta.glsl"
// Kernel delta_recur_many: delta_recur with the state in registers. KEYS is a multiple of 4 and at most 128. A workgroup has 32 columns
// of a value head of a sequence, a thread one column and the keys of one of the four sums. Tokens pass through shared memory, 8 at a time.
layout(constant_id = 1) const int KEYS = 128;
layout(local_size_x = 128) in;
layout(push_constant, scalar) uniform Args {
  Call call;
  Floats dst, mixed;
  int layer, dstStride, keyHeads, valueHeads, neighbors, values, rows;
} g;
const int OWN = KEYS / 4, QUADS = (OWN + 3) / 4, TOKENS = 8, COLUMNS = 32, PIECES = (TOKENS * KEYS + 127) / 128;
shared vec4 keys[TOKENS][4][QUADS], queries[TOKENS][4][QUADS];
shared float values[TOKENS][COLUMNS];
shared vec4 gates[TOKENS];              // decay, beta, key·query
shared uint faints[2][TOKENS];          // of a token: a number is too small for chains without tests
shared vec2 sums[2][4][COLUMNS];
shared float slowState[KEYS][COLUMNS];  // of threads that test every operation
float nextKeys[PIECES], nextQueries[PIECES], nextValues[2];
vec4 nextGates;
float x[OWN];

int self() { return int(gl_LocalInvocationID.x); }

// fetch loads tokens of a sequence from one on into registers. h and m are the value head and its key head.
void fetch(Seq s, int first, int h, int m, int column) {
  int t = self(), key = g.rows * g.keyHeads * KEYS, value = 2 * key, kqs = value + g.rows * g.valueHeads * g.values, decays = kqs + g.rows * g.keyHeads, betas = decays + g.rows * g.valueHeads;
  [[unroll]] for (int n = 0; n < PIECES; n++) {
    int i = t + 128 * n, token = first + i / KEYS, at = ((s.first + token) * g.keyHeads + m) * KEYS + i % KEYS;
    bool has = i < TOKENS * KEYS && token < s.n;
    nextKeys[n] = has ? g.mixed.v[key + at] : 0.0;
    nextQueries[n] = has ? g.mixed.v[at] : 0.0;
  }
  [[unroll]] for (int n = 0; n < 2; n++) {
    int token = first + t / COLUMNS + 4 * n, c = column + t % COLUMNS;
    nextValues[n] = token < s.n && c < g.values ? g.mixed.v[value + ((s.first + token) * g.valueHeads + h) * g.values + c] : 0.0;
  }
  if (t < TOKENS && first + t < s.n) {
    int r = s.first + first + t;
    nextGates = vec4(g.mixed.v[decays + r * g.valueHeads + h], g.mixed.v[betas + r * g.valueHeads + h], g.mixed.v[kqs + r * g.keyHeads + m], 0.0);
  }
}

// store brings them to shared memory.
void store(int buffer_) {
  int t = self();
  [[unroll]] for (int n = 0; n < PIECES; n++) {
    int i = t + 128 * n, token = i / KEYS, c = i % KEYS;
    if (i >= TOKENS * KEYS) break;
    keys[token][c & 3][c / 16][c / 4 & 3] = nextKeys[n];
    queries[token][c & 3][c / 16][c / 4 & 3] = nextQueries[n];
    if (faint(nextKeys[n]) || faint(nextQueries[n])) faints[buffer_][token] = 1u;
  }
  [[unroll]] for (int n = 0; n < 2; n++) values[t / COLUMNS + 4 * n][t % COLUMNS] = nextValues[n];
  if (t < TOKENS) {
    gates[t] = nextGates;
    // Products of a decay from 2^-60 on and a number that is not faint are multiples of 2^-122, too.
    if (floatBitsToUint(nextGates.x) - 1u < (67u << 23) - 1u) faints[buffer_][t] = 1u;
  }
}

void main() {
  int strips = (g.values + COLUMNS - 1) / COLUMNS, h = int(gl_WorkGroupID.x) / strips, column = int(gl_WorkGroupID.x) % strips * COLUMNS;
  int t = self(), chain = t / COLUMNS, own = t % COLUMNS, col = column + own, m = h / g.neighbors % g.keyHeads;
  bool mine = col < g.values;
  for (int owner = int(gl_WorkGroupID.y); owner < g.call.seqs; owner += int(gl_NumWorkGroups.y)) {
    Seq s = g.call.seq.v[owner];
    Recurrent mem = memoryOf(g.call, s, g.layer);
    int at = (h * KEYS + chain) * mem.stateStride + col, stride = 4 * mem.stateStride;
    if (mine && s.n > 0) {
      for (int i = 0; i < OWN; i++) slowState[4 * i + chain][own] = mem.state.v[at + i * stride];
      for (int j = 0; j < s.accepted; j++) {
        float delta = mem.deltas.v[j * mem.deltasStride + h * g.values + col], decay = mem.decays.v[j * mem.decaysStride + h];
        for (int i = 0; i < OWN; i++)
          slowState[4 * i + chain][own] = fused(mem.keys.v[j * mem.keysStride + m * KEYS + 4 * i + chain], delta, mul(decay, slowState[4 * i + chain][own]));
      }
    }
    uint least = 0xffffffffu;
    [[unroll]] for (int i = 0; i < OWN; i++) {
      x[i] = mine && s.n > 0 ? slowState[4 * i + chain][own] : 0.0;
      least = min(least, (floatBitsToUint(x[i]) << 1) - 1u);
    }
    barrier();
    if (t < TOKENS) faints[0][t] = 0u;
    fetch(s, 0, h, m, column);
    for (int first = 0; first < s.n; first += TOKENS) {
      int buffer_ = first / TOKENS & 1;
      barrier();
      store(buffer_);
      barrier();
      if (t < TOKENS) faints[~buffer_ & 1][t] = 0u;
      if (first + TOKENS < s.n) fetch(s, first + TOKENS, h, m, column);
      [[dont_unroll]] for (int k = 0; k < min(TOKENS, s.n - first); k++) {
        int token = first + k;
        if (token == s.n - s.drafts && mine) // what follows may be rejected
          [[unroll]] for (int i = 0; i < OWN; i++) mem.state.v[at + i * stride] = x[i];
        bool slow = LEVEL == 2u || LEVEL >= 3u && (faints[buffer_][k] != 0u || least < 0x58ffffffu);
        float u = 0.0, w = 0.0;
        if (slow) {
          [[unroll]] for (int i = 0; i < OWN; i++) slowState[4 * i + chain][own] = x[i];
          [[dont_unroll]] for (int i = 0; i < OWN; i++) {
            float y = slowState[4 * i + chain][own];
            u = fused(keys[k][chain][i / 4][i & 3], y, u);
            w = fused(queries[k][chain][i / 4][i & 3], y, w);
          }
        } else if (LEVEL != 2u) {
          [[unroll]] for (int i = 0; i < OWN; i++) {
            u = fusedPlain(keys[k][chain][i / 4][i & 3], x[i], u);
            w = fusedPlain(queries[k][chain][i / 4][i & 3], x[i], w);
          }
        }
        sums[k & 1][chain][own] = vec2(u, w);
        barrier();
        vec2 a = sums[k & 1][0][own], b = sums[k & 1][1][own], c = sums[k & 1][2][own], d = sums[k & 1][3][own];
        float su = add(add(a.x, b.x), add(c.x, d.x)), sw = add(add(a.y, b.y), add(c.y, d.y));
        vec4 gate = gates[k];
        float decay = gate.x, delta = mul(fused(negated(decay), su, values[k][own]), gate.y);
        if (chain == 0 && mine) {
          g.dst.v[(s.first + token) * g.dstStride + h * g.values + col] = fused(gate.z, delta, mul(decay, sw));
          if (token >= s.n - s.drafts) mem.deltas.v[(token - s.n + s.drafts) * mem.deltasStride + h * g.values + col] = delta;
        }
        least = 0xffffffffu;
        if (slow || LEVEL >= 3u && faint(delta)) {
          [[unroll]] for (int i = 0; i < OWN; i++) slowState[4 * i + chain][own] = x[i];
          [[dont_unroll]] for (int i = 0; i < OWN; i++) slowState[4 * i + chain][own] = fused(keys[k][chain][i / 4][i & 3], delta, mul(decay, slowState[4 * i + chain][own]));
          [[unroll]] for (int i = 0; i < OWN; i++) x[i] = slowState[4 * i + chain][own];
        } else if (LEVEL != 2u) {
          [[unroll]] for (int i = 0; i < OWN; i++) x[i] = fusedPlain(keys[k][chain][i / 4][i & 3], delta, mulPlain(decay, x[i]));
        }
        [[unroll]] for (int i = 0; i < OWN; i++) least = min(least, (floatBitsToUint(x[i]) << 1) - 1u);
      }
    }
    if (mine && s.n > 0 && s.drafts == 0)
      [[unroll]] for (int i = 0; i < OWN; i++) mem.state.v[at + i * stride] = x[i];
    barrier();
  }
}
