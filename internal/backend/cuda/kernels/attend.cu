// Attention: the kernels before the pages and after them, and pages of float32 and of half precision.
// backend.Ops.Attend; the order of additions is that of the CPU's Page.
#include "async.cuh"
#include "pages.cuh"
#include "quantize.cuh"

// Rotations per position of pairs, the index of the position that rotates each, and the factor of cosines
// and sines.
const int maxPairs = 256;
struct Turns {  // shared with Go
  int pairs, sections;
  float factor;
  float freqs[maxPairs];
  unsigned char section[maxPairs];
};

// Kernel attend_turns: cosines and sines of rotary position embedding for the rows of a pass.
// Layout: positions of the call block → [rows][2][pairs] float32.
// Grid: x: rows, a thread for each pair.
// Sums: none.
//
// Cosines and sines of the rows' angles: a block has a row.
extern "C" __global__ void attend_turns(const Call *call, const __grid_constant__ Turns t, float *to) {
  release();
  await();
  const int r = blockIdx.x, i = threadIdx.x;
  if (i >= t.pairs) return;
  float sin, cos;
  sincos32(mul((float)call->positions[3 * r + (t.sections ? t.section[i] : 0)], t.freqs[i]), &sin, &cos);
  to[(size_t)2 * r * t.pairs + i] = mul(cos, t.factor);
  to[(size_t)(2 * r + 1) * t.pairs + i] = mul(sin, t.factor);
}

// quantize quantizes n numbers in shared memory with a warp, like the CPU's quantizeGroup: code i
// goes to to[i*step], with the bits of flip changed. It returns the scale; total is the sum of the codes.
__device__ __forceinline__ float quantize(const float *x, int n, unsigned char *to, int step, int flip, int *total) {
  const int lane = threadIdx.x & 31;
  unsigned top = 0;
#pragma unroll 2
  for (int i = lane; i < n; i += 32) top = max(top, __float_as_uint(x[i]) & 0x7fffffffu);
  top = __reduce_max_sync(0xffffffffu, top);
  const float most = __uint_as_float(top), inverse = quot(127.0f, most);
  const bool none = top == 0 || top >= 0x7f800000u || inverse > 3.402823466e+38f;
  int sum = 0;
#pragma unroll 2
  for (int i = lane; i < n; i += 32) {
    const int code = none ? 0 : min(max((int)add(mul(x[i], inverse), 12582912.0f) - 12582912, -127), 127);
    sum += code;
    to[(size_t)i * step] = (unsigned char)(code ^ flip);
  }
  *total = __reduce_add_sync(0xffffffffu, sum);
  return top >= 0x7f800000u ? __int_as_float(0x7fc00000) : none ? 0.0f : quot(most, 127.0f);
}

// pack rounds the codes of half a group, a thread's is code, to 16 levels, like the CPU's packHalf. It returns
// the level.
__device__ __forceinline__ int pack(int code, int *step, int *low) {
  const int least = 255 - (int)__reduce_max_sync(0xffffffffu, (unsigned)(255 - code)), span = (int)__reduce_max_sync(0xffffffffu, (unsigned)code) - least;
  const int s = min(max((span + 14) / 15, 1), 16), l = min(max(least - ((15 * s - span) >> 1), 1), 255 - 15 * s);
  *step = s, *low = l;
  return (2 * (code - l) + s) / (2 * s);
}

// Kernel attend_prepare: QK norm, rotary position embedding, and appending of keys and values to the paged KV cache, with
//   int8 or int4 quantization if the cache has 8 or 4 bits.
// Layout: float32 rows → queries [rows][heads] and pages of 64 positions.
// Grid: x: 4 heads, a warp each; y: rows.
// Sums: squares of a norm in lane order.
//
// Norms and rotation of queries and keys, and the new rows of pages. A warp has a head of a row.
extern "C" __global__ void __launch_bounds__(128) attend_prepare(const Call *call, const __grid_constant__ Layer a) {
  extern __shared__ float heads[];  // for each warp: a head and its second part, of codes both in whole groups; in i4 then its codes
  const int lane = threadIdx.x & 31, r = blockIdx.y, share = a.share(), keyGroups = a.keyGroups(), groups = a.groups();
  int i = blockIdx.x * 4 + threadIdx.x / 32;
  release();
  await();
  if (a.queries == 0) i += a.heads;
  const bool query = i < a.heads, value = i >= a.heads + a.kvHeads;
  if (i >= a.heads + (!a.k ? 0 : a.latent ? 1 : 2) * a.kvHeads) return;
  const int kv = query ? i / share : value ? i - a.heads - a.kvHeads : i - a.heads;
  // Numbers of the two parts, and with padding to whole groups.
  const int n[2] = {value ? a.value : a.key, value ? 0 : a.tail};
  const bool coded = a.coded(), packed = a.kind == i4;
  const int whole[2] = {coded && !value ? keyGroups * codedGroup : n[0], coded ? (groups - keyGroups) * codedGroup : n[1]};
  const int room = max(packed ? a.valueGroups() * codedGroup : a.value, coded ? groups * codedGroup : a.key + a.tail);
  float *y = heads + threadIdx.x / 32 * room, *tail = y + whole[0];
  unsigned char *codes = (unsigned char *)(heads + 4 * room) + threadIdx.x / 32 * room;
  const float *x = query ? a.q + (size_t)r * a.qStride + i * a.head : value ? a.v + (size_t)r * a.vStride + kv * a.value : a.k + (size_t)r * a.kStride + kv * (a.key + a.tail);
  const float *gain = query ? a.qNorm : value ? nullptr : a.kNorm;
  // The call block is read while the numbers are on their way.
  const int owner = call->rowSeq[r];
  const Seq s = call->seq[max(owner, 0)];
  const int pos = s.pos + r - s.first, slot = pos % pageTokens;
  float scale = 0.0f;
  if (gain) {
    float sum = 0.0f;
#pragma unroll 16
    for (int c = lane & 15; c < a.key; c += 16) sum = fused(x[c], x[c], sum);
    scale = rsqrt32(add(quot(sum16(sum), (float)a.key), a.eps));
  }
#pragma unroll 4
  for (int c = lane; c < whole[0]; c += 32) y[c] = c >= n[0] ? 0.0f : gain ? mul(mul(x[c], scale), gain[c]) : x[c];
#pragma unroll 1
  for (int c = lane; c < (value ? 0 : whole[1]); c += 32) tail[c] = c < n[1] ? x[a.key + c] : 0.0f;
  __syncwarp();
  float *turned = a.latent ? tail : y;
#pragma unroll 1
  for (int j = lane; j < (value ? 0 : a.pairs); j += 32) {
    float *p = turned + (a.interleaved ? 2 * j : j), *q = a.interleaved ? p + 1 : p + a.pairs;
    const float cos = a.rotation[(size_t)2 * r * a.pairs + j], sin = a.rotation[(size_t)(2 * r + 1) * a.pairs + j], u = *p, v = *q;
    *p = fused(u, cos, -mul(v, sin));
    *q = fused(v, cos, mul(u, sin));
  }
  __syncwarp();
  if (owner < 0) return;
  unsigned char *page = query ? nullptr : call->page[s.pages + pos / pageTokens];  // of a query there may be none
  if (query && !coded) {
    float *to = a.floats + ((size_t)r * a.heads + i) * (a.key + a.tail);
#pragma unroll 2
    for (int c = lane; c < a.key + a.tail; c += 32) to[c] = y[c];
    return;
  }
  // Destinations of codes: queries together; a row of a page for each part; values by column.
  // Latent rows and values have one scale, others one for each group. Rows of 4 bits are packed when they have codes of 8.
  const size_t at = ((size_t)r * a.heads + i) * groups;
#pragma unroll 1
  for (int which = 0; which < (n[1] ? 2 : 1); which++) {
    unsigned char *rows = query ? nullptr : a.rows(page, value ? 1 : which, kv);
    const float *from = which ? tail : y;
    const int all = which ? whole[1] : whole[0], count = which ? n[1] : n[0];
    if (a.kind == f32) {
#pragma unroll 2
      for (int c = lane; c < count; c += 32) ((float *)rows)[slot * count + c] = from[c];
    } else if (a.kind == f16) {
#pragma unroll 2
      for (int c = lane; c < count; c += 32) ((__half *)rows)[slot * count + c] = __float2half_rn(from[c]);
    } else {
      const int group = query || (!value && !a.latent) ? codedGroup : all, first = which ? keyGroups : 0;
#pragma unroll 1
      for (int g = 0; g * group < all; g++) {
        unsigned char *to = query ? (unsigned char *)a.codes + (at + first + g) * codedGroup : packed ? codes + g * group : value ? rows + slot : rows + slot * all + g * group;
        int total;
        const float scale = quantize(from + g * group, group, to, value && !packed ? pageTokens : 1, query || value && !packed ? 0 : 0x80, &total);
        if (lane > 0) continue;
        if (query) {
          a.scales[at + first + g] = mul(scale, a.scale);
          a.starts[at + first + g] = 0x4b400000 - 128 * total;
        } else {
          (value ? a.valueScales(rows) : a.keyScales(rows, all / codedGroup))[g * pageTokens + slot] = scale;
        }
      }
      if (!packed || query) continue;
      const int padded = (all + codedGroup - 1) / codedGroup;
#pragma unroll 1
      for (int c = all + lane; c < padded * codedGroup; c += 32) codes[c] = 0x80;
      __syncwarp();
#pragma unroll 1
      for (int g = 0; g < padded; g++) {
        int step[2], low[2];
        const int level = pack(codes[g * codedGroup + lane], &step[0], &low[0]), upper = pack(codes[g * codedGroup + packedHalf + lane], &step[1], &low[1]);
        unsigned char *to = value ? rows + g * packedValues + slot : rows + (slot * padded + g) * packedHalf;
        unsigned char *range = value ? to + packedHalf * pageTokens : rows + pageTokens * padded * packedHalf + (g * pageTokens + slot) * 4;
        const int stride = value ? pageTokens : 1;
        to[lane * stride] = (unsigned char)(level | upper << 4);
        if (lane < 4) range[lane * stride] = (unsigned char)(lane == 0 ? step[0] : lane == 1 ? low[0] : lane == 2 ? step[1] : low[1]);
      }
      __syncwarp();
    }
  }
}

// Kernel attend_TYPE, attend_TYPE_wide: paged attention (FlashAttention-style online softmax, FlashDecoding split over pages)
//   over a 16-bit or 32-bit KV cache; wide: values of more than 256 numbers, such as latent rows (MLA).
// Layout: pages of 64 positions: keys, then values, by head.
// Grid: persistent: blocks take pieces of 16 queries of a KV head and some pages.
// Sums: scores and softmax weights in lane order (16 lanes, then a tree), values in order of position, pages merged in order
//   (online softmax per page of 64 positions).
extern "C" __global__ void __launch_bounds__(256, 2) attend_halves(const Call *call, const __grid_constant__ Layer a) { floats<__half, 1>(call, a); }
extern "C" __global__ void __launch_bounds__(256) attend_floats(const Call *call, const __grid_constant__ Layer a) { floats<float, 1>(call, a); }

// Kernel attend_join: merges the partial softmax sums of pages (FlashDecoding reduction), fused with quantization where a
//   product asks for it.
// Layout: partial sums [slots][columns] float32 with top and weight → float32 rows and codes.
// Grid: x: rows times heads, y: 64 columns.
// Sums: pages in order.
//
// The sums of pages that were computed separately, merged in their order. A block has joinColumns columns
// of a query, which it also quantizes if a product needs that, for both ways of computing; the factors of all
// pages but one come first, joinPages at a time. Twice batch pages, a power of two, are in dynamic
// shared memory: fewer if there are more blocks.
const int joinColumns = 64, joinPages = 256;

extern "C" __global__ void __launch_bounds__(joinColumns) attend_join(const Call *call, const __grid_constant__ Layer a, int batch, Codes codes) {
  __shared__ float4 factors[joinPages];  // tops, then the factors of the old sum and of a page, and its weight
  __shared__ float answer[joinColumns];
  extern __shared__ float pages[];  // [2*batch][joinColumns]
  const int tid = threadIdx.x, lane = tid & 31, r = blockIdx.x / a.heads, h = blockIdx.x % a.heads, share = a.share(), c = blockIdx.y * joinColumns + tid;
  release();
  const int owner = call->rowSeq[r];
  Work w;
  w.s = call->seq[max(owner, 0)];
  w.kv = h / share;
  w.skip = a.firstPage(w.s.pos);
  w.slot = slotsBefore(a, call, w.s.first) + w.kv * w.s.n * share;
  const bool joins = apart(a, call) && owner >= 0;
  await();
  const float *q = a.q + (size_t)r * a.qStride + h * a.head + a.key + a.tail + c;
  const float gate = a.gate && c < a.value ? *q : 0.0f;  // loaded before it is needed
  const auto round = [&](float y) {
    answer[tid] = y;
    __syncthreads();
    if (tid >= 32) return;
    const float v[4] = {answer[lane], answer[joinColumns / 2 + lane], 0.0f, 0.0f};
    quantizeRow(v, joinColumns, codes, r, h * a.value + blockIdx.y * joinColumns);
  };
  if (!joins) {
    if (codes.codes) round(a.dst[(size_t)r * a.dstStride + h * a.value + c]);
    return;
  }
  const int i = (r - w.s.first) * share + h % share, pos = w.s.pos + r - w.s.first, begin = a.firstPage(pos), end = a.endPage(w.s, pos);
  const int page = w.s.n * a.heads, step = page * a.columns();  // from one page's to the next
  const bool coded = a.coded();
  const float minus = __int_as_float(0xff800000);
  float highest = minus, sum = 0.0f, weight = 0.0f;
#pragma unroll 1
  for (int first = begin; first < end; first += joinPages) {
    const int n = min(joinPages, end - first);
    const float4 *tops = a.tops + slotOf(a, w, first, i);
    const float *from = a.sums + slotOf(a, w, first, i) * a.columns() + c;
    // The sums of batch pages are loaded while earlier ones are added, and the first while
    // the factors are computed. A thread loads the numbers that it adds.
    auto ask = [&](int j0) {
      if (c < a.value)
#pragma unroll 8
        for (int j = j0; j < min(n, j0 + batch); j++) copy4(&pages[(j & (2 * batch - 1)) * joinColumns + tid], from + (size_t)j * step);
      commit();
    };
    __syncthreads();
#pragma unroll 1
    for (int p = tid; p < n; p += joinColumns) copy16(&factors[p], tops + (size_t)p * page);
    commit();
    ask(0);
    arrive<1>();
    __syncthreads();
    if (tid < 32)
#pragma unroll 1
      for (int p = lane; p - lane < n; p += 32) {
        const float4 now = factors[min(p, n - 1)];
        const float top = p < n ? now.x : minus;
        float upto = top;
#pragma unroll
        for (int k = 1; k < 32; k <<= 1) {
          const float x = __shfl_up_sync(0xffffffffu, upto, k);
          if (lane >= k) upto = fmaxf(upto, x);
        }
        upto = fmaxf(upto, highest);
        const float before = __shfl_up_sync(0xffffffffu, upto, 1);
        const float by = expDown(sub(top, upto)), old = expDown(sub(lane > 0 ? before : highest, upto));
        __syncwarp();
        if (p < n) factors[p] = make_float4(old, coded ? mul(by, now.z) : by, now.y, by);
        highest = __shfl_sync(0xffffffffu, upto, 31);
      }
    __syncthreads();
    // The first page needs no factor.
    const bool taken = first == begin && !coded;
#pragma unroll 1
    for (int j0 = 0; j0 < n; j0 += batch) {
      ask(j0 + batch);
      arrive<1>();
      if (taken && j0 == 0) {
        if (c < a.value) sum = pages[tid];
        weight = factors[0].z;
      }
#pragma unroll 4
      for (int j = j0 + (taken && j0 == 0); j < min(n, j0 + batch); j++) {
        const float4 f = factors[j];
        if (c < a.value) sum = fused(pages[(j & (2 * batch - 1)) * joinColumns + tid], f.y, mul(sum, f.x));
        weight = fused(f.z, f.w, mul(weight, f.x));
      }
    }
  }
  const float y = c < a.value ? finish(a, r, h, c, sum, weight, gate) : 0.0f;
  if (codes.codes) round(y);
}
