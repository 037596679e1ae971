#include "lanes.glsl"
// The sum of squares of a row, by a workgroup of 256 threads or more: lanes of every 64th column, then the tree of exactmath's wide lanes. The
// row comes through shared memory, a part at a time.
const int PART = 4096, LINKS = 16; // columns of a lane that are read at once
shared float part[PART];
shared uint faints; // a number of the part is too small for chains without tests

// addSquares adds the squares of the part's columns of a lane to s. Up to a multiple of 1024, zeros are behind the last column.
float addSquares(float s, int n) {
  int i = int(gl_LocalInvocationIndex);
  float begin = s;
  if (LEVEL != 2u)
    for (int c = i; c < n; c += 64 * LINKS) {
      float x[LINKS];
      [[unroll]] for (int j = 0; j < LINKS; j++) x[j] = part[c + 64 * j];
      [[unroll]] for (int j = 0; j < LINKS; j++) s = fusedPlain(x[j], x[j], s);
    }
  if (LEVEL == 2u || LEVEL >= 3u && faints != 0u) {
    s = begin;
    [[dont_unroll]] for (int c = i; c < n; c += 64) s = fused(part[c], part[c], s);
  }
  return s;
}

float sumOfSquares(Floats x, int from, int cols) {
  int i = int(gl_LocalInvocationIndex);
  float s = 0.0;
  for (int first = 0; first < cols; first += PART) {
    int n = min(PART, cols - first);
    barrier();
    if (i == 0) faints = 0u;
    barrier();
    float v[PART / 256]; // all are loaded before the first is used
    bool small_ = false;
    [[unroll]] for (int k = 0; k < PART / 256; k++) v[k] = i + 256 * k < n ? x.v[from + first + i + 256 * k] : 0.0;
    [[unroll]] for (int k = 0; k < PART / 256; k++) {
      part[i + 256 * k] = v[k];
      small_ = small_ || faint(v[k]);
    }
    if (small_) faints = 1u;
    barrier();
    if (i < 64) s = addSquares(s, n);
  }
  return wideSum(s);
}
