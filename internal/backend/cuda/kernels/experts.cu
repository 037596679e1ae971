// A mixture of experts: the choice, the places of the chosen, and the sum. Every choice of a row
// has a slot, a row of its own in what experts compute; the slots of an expert lie together, from a
// multiple of eight on, and its products are jobs over them. Where the shared expert is like the others
// it is one of the jobs, as matrix -1, with a slot for every row behind those of the choices.
#include "product.cuh"

// Choice is what is asked for: see backend.Experts.
struct Choice {
  const float* logits;  // [rows, experts]
  const float* bias;    // [experts], or none
  int* chosen;          // [rows, topK]
  float* weights;       // [rows, topK]
  int logitsStride, experts, topK, sigmoid, groups, topGroups, normalize;
  float scale;  // 0: 1
};

#define LANES 0xffffffffu

// insert ranks keys one by one, as the portable code does: for few of them, and where one is not a
// number and so has no rank.
__device__ void insert(int* chosen, int k, const float* keys, int count) {
  int n = 0;
#pragma unroll 1
  for (int i = 0; i < count; i++) {
    int j = n;
#pragma unroll 1
    while (j > 0 && keys[i] > keys[chosen[j - 1]]) j--;
    if (j == k) continue;
    n = min(n + 1, k);
#pragma unroll 1
    for (int m = n - 1; m > j; m--) chosen[m] = chosen[m - 1];
    chosen[j] = i;
  }
}

// rank writes the indices of the k highest keys, the lower first among equals. A warp computes it,
// a lane for every 32nd key; there are at most 1024.
__device__ void rank(int* chosen, int k, const float* keys, int count) {
  const int lane = threadIdx.x & 31;
  bool odd = false;
#pragma unroll 1
  for (int i = lane; i < count; i += 32) odd |= keys[i] != keys[i];
  if (__any_sync(LANES, odd)) {
    if (lane == 0) insert(chosen, k, keys, count);
    __syncwarp();
    return;
  }
  word taken = 0;
#pragma unroll 1
  for (int j = 0; j < k; j++) {
    int best = -1;
    float top = 0;
#pragma unroll 1
    for (int i = lane; i < count; i += 32)
      if (!(taken >> i / 32 & 1) && (best < 0 || keys[i] > top)) best = i, top = keys[i];
#pragma unroll 1
    for (int d = 16; d > 0; d /= 2) {
      const int other = __shfl_xor_sync(LANES, best, d);
      const float key = __shfl_xor_sync(LANES, top, d);
      if (other >= 0 && (best < 0 || key > top || (key == top && other < best))) best = other, top = key;
    }
    if (best >= 0 && (best & 31) == lane) taken |= 1u << best / 32;
    if (lane == 0) chosen[j] = best;
  }
  __syncwarp();
}

// softmax replaces x by exp(x-top) and returns the sum, in lanes of 16. A warp computes it.
__device__ float softmax(float* x, int count) {
  const int lane = threadIdx.x & 31;
  float top = __int_as_float(0xff800000), sum = 0;
#pragma unroll 1
  for (int i = lane; i < count; i += 32)
    if (x[i] > top) top = x[i];
#pragma unroll 1
  for (int d = 16; d > 0; d /= 2) {
    const float other = __shfl_xor_sync(LANES, top, d);
    if (other > top) top = other;
  }
#pragma unroll 1
  for (int i = lane; i < count; i += 32) x[i] = exp32(sub(x[i], top));
  __syncwarp();
  if (lane < 16)
#pragma unroll 1
    for (int i = lane; i < count; i += 16) sum = add(sum, x[i]);
  sum = sum16(sum);
  return __shfl_sync(LANES, sum, 0);
}

// leaveOut makes the keys of all but the best groups minus infinity. sums has space for as many
// numbers as there are groups, best for as many as stay.
__device__ void leaveOut(float* keys, int count, int groups, int stay, float* sums, int* best) {
  const int lane = threadIdx.x & 31, size = count / groups;
#pragma unroll 1
  for (int g = lane; g < groups; g += 32) {
    int two[2];
    insert(two, min(2, size), keys + g * size, size);
    float sum = add(0.0f, keys[g * size + two[0]]);
    if (size > 1) sum = add(sum, keys[g * size + two[1]]);
    sums[g] = sum;
  }
  __syncwarp();
  if (lane == 0) insert(best, stay, sums, groups);
  __syncwarp();
#pragma unroll 1
  for (int i = lane; i < count; i += 32) {
    bool stays = false;
#pragma unroll 1
    for (int j = 0; j < stay; j++) stays |= best[j] == i / size;
    if (!stays) keys[i] = __int_as_float(0xff800000);
  }
  __syncwarp();
}

// chooseRow has a warp rank and weigh the experts of a row. scores has space for twice the experts and
// twice the groups.
__device__ __forceinline__ void chooseRow(const Choice& c, int row, float* scores) {
  const int lane = threadIdx.x & 31, n = c.experts, k = c.topK;
  const float* logits = c.logits + (long long)row * c.logitsStride;
  int* chosen = c.chosen + (long long)row * k;
  float* weights = c.weights + (long long)row * k;
  float *keys = scores + n, *sums = keys + n;
#pragma unroll 1
  for (int i = lane; i < n; i += 32) scores[i] = logits[i];
  __syncwarp();
  float total = 0;
  if (!c.sigmoid && !c.bias && c.groups <= 1) {
    rank(chosen, k, scores, n);
    if (!c.normalize) total = softmax(scores, n);
#pragma unroll 1
    for (int j = lane; j < k; j += 32) keys[j] = scores[chosen[j]];
    __syncwarp();
    if (c.normalize) total = softmax(keys, k);
  } else {
    if (c.sigmoid) {
#pragma unroll 1
      for (int i = lane; i < n; i += 32) scores[i] = sigmoid32(scores[i]);
    } else {
      total = softmax(scores, n);
#pragma unroll 1
      for (int i = lane; i < n; i += 32) scores[i] = quot(scores[i], total);
    }
#pragma unroll 1
    for (int i = lane; i < n; i += 32) keys[i] = c.bias ? add(scores[i], c.bias[i]) : scores[i];
    __syncwarp();
    if (c.groups > 1) leaveOut(keys, n, c.groups, c.topGroups, sums, (int*)(sums + c.groups));
    rank(chosen, k, keys, n);
    total = 0;
#pragma unroll 1
    for (int j = 0; j < k; j++) total = add(total, scores[chosen[j]]);
    __syncwarp();
#pragma unroll 1
    for (int j = lane; j < k; j += 32) keys[j] = scores[chosen[j]];
    total = c.normalize ? add(total, 1e-20f) : 1.0f;
  }
#pragma unroll 1
  for (int j = lane; j < k; j += 32) {
    const float w = quot(keys[j], total);
    weights[j] = c.scale != 0 ? mul(w, c.scale) : w;
  }
}

// choose has a warp for each row.
extern "C" __global__ void __launch_bounds__(32) choose(const __grid_constant__ Choice c) {
  extern __shared__ float scores[];
  release();
  await();
  chooseRow(c, blockIdx.x, scores);
}

// Places is where choices go: slots, and jobs of at most `most` rows each. Of the shared expert, if it is
// one of the jobs, there are `shared` rows.
struct Places {
  const int* chosen;
  int* slots;
  Job* jobs;
  int* jobCount;
  int choices, most, shared, unused;
};

// Counts is what a block counts by expert: choices, and up to it slots and jobs.
struct Counts {
  int count[1024], first[2][1024], job[2][1024];
};

// assignAll has a block give every choice its slot and list the jobs, a thread for each expert.
__device__ __forceinline__ void assignAll(const Places& p, Counts& counts) {
  auto &count = counts.count;
  auto &first = counts.first, &job = counts.job;
  const int* chosen = p.chosen;
  int* slots = p.slots;
  const int choices = p.choices, most = p.most, e = threadIdx.x;
  count[e] = 0;
  __syncthreads();
#pragma unroll 1
  for (int i = e; i < choices; i += blockDim.x) slots[i] = atomicAdd(&count[chosen[i]], 1);
  __syncthreads();
  const int rows = count[e], parts = (rows + most - 1) / most, space = (rows + 7) & ~7;
  first[0][e] = space, job[0][e] = parts;
  __syncthreads();
  int now = 0;
#pragma unroll 1
  for (int d = 1; d < blockDim.x; d *= 2, now ^= 1) {
    first[now ^ 1][e] = first[now][e] + (e >= d ? first[now][e - d] : 0);
    job[now ^ 1][e] = job[now][e] + (e >= d ? job[now][e - d] : 0);
    __syncthreads();
  }
#pragma unroll 1
  for (int i = 0; i < parts; i++) {
    const Job j = {e, first[now][e] - space + i * most, min(most, rows - i * most), 0};
    p.jobs[job[now][e] - parts + i] = j;
  }
  const int end = first[now][blockDim.x - 1], jobs = job[now][blockDim.x - 1];
#pragma unroll 1
  for (int i = e; i * most < p.shared; i += blockDim.x) p.jobs[jobs + i] = Job{-1, end + i * most, min(most, p.shared - i * most), 0};
#pragma unroll 1
  for (int i = e; i < p.shared; i += blockDim.x) slots[choices + i] = end + i;
  if (e == 0) *p.jobCount = jobs + (p.shared + most - 1) / most;
#pragma unroll 1
  for (int i = e; i < choices; i += blockDim.x) {
    const int c = chosen[i];
    slots[i] += first[now][c] - ((count[c] + 7) & ~7);
  }
}

extern "C" __global__ void __launch_bounds__(1024) assign(const __grid_constant__ Places p) {
  __shared__ Counts counts;
  release();
  await();
  assignAll(p, counts);
}

// choose_assign is both, for few rows: a warp has a row at a time. Shared memory: for each warp what
// chooseRow wants.
extern "C" __global__ void __launch_bounds__(1024) choose_assign(const __grid_constant__ Choice c, const __grid_constant__ Places p, int rows) {
  extern __shared__ float scores[];
  __shared__ Counts counts;
  release();
  await();
  const int warp = threadIdx.x / 32;
#pragma unroll 1
  for (int row = warp; row < rows; row += blockDim.x / 32) {
    chooseRow(c, row, scores + warp * 2 * (c.experts + max(c.groups, 1)));
    __syncwarp();
  }
  __syncthreads();
  assignAll(p, counts);
}

// gatherSlots copies each choice's row of x to its slot.
extern "C" __global__ void __launch_bounds__(256) gatherSlots(float* dst, const float* x, int stride, int cols, const int* slots, int topK) {
  release();
  await();
  const float* from = x + (long long)(blockIdx.y / topK) * stride;
  float* to = dst + (long long)slots[blockIdx.y] * cols;
#pragma unroll 1
  for (int i = blockIdx.x * 256 + threadIdx.x; i < cols; i += gridDim.x * 256) to[i] = from[i];
}

// combine adds the answers of a row's experts to dst: by rank, then the shared one, whose weight is
// the sigmoid of router's number or, without router, 1. The shared answers are rows of their own or, if
// there is a place among the slots where those of the rows begin, in these.
extern "C" __global__ void __launch_bounds__(256) combine(float* dst, int stride, const float* answers, const float* weights, const int* slots, int topK, int cols, const float* shared, int sharedSlots, const float* router, int routerStride) {
  release();
  await();
  const long long row = blockIdx.y;
  if (sharedSlots) shared = answers + (long long)slots[sharedSlots + row] * cols;
  else if (shared) shared += row * cols;
  const float weight = shared && router ? sigmoid32(router[row * routerStride]) : 1.0f;
#pragma unroll 1
  for (int i = blockIdx.x * 256 + threadIdx.x; i < cols; i += gridDim.x * 256) {
    float sum = 0;
#pragma unroll 1
    for (int j = 0; j < topK; j++) sum = add(sum, mul(weights[row * topK + j], answers[(long long)slots[row * topK + j] * cols + i]));
    if (shared) sum = add(sum, mul(weight, shared[i]));
    dst[row * stride + i] = add(dst[row * stride + i], sum);
  }
}
