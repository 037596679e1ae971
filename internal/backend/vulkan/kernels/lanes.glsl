shared float lanes[64], eighths[8]; // eighths: sums of every eighth lane

// wideSum adds the numbers of the first 64 threads in the tree of exactmath's wide lanes, halves onto halves. All threads get the sum.
float wideSum(float a) {
  uint i = gl_LocalInvocationIndex;
  barrier();
  if (i < 64u) lanes[i] = a;
  barrier();
  if (i < 8u) {
    float s[8];
    [[unroll]] for (uint j = 0u; j < 8u; j++) s[j] = lanes[i + 8u * j];
    eighths[i] = tree8(s);
  }
  barrier();
  float s[8];
  [[unroll]] for (int j = 0; j < 8; j++) s[j] = eighths[j];
  return tree8(s);
}

// sum16 adds the numbers of the first 16 threads in the tree of SumLanes32. All threads get the sum.
float sum16(float a) {
  uint i = gl_LocalInvocationIndex;
  barrier();
  if (i < 16u) lanes[i] = a;
  barrier();
  float s[8];
  [[unroll]] for (uint j = 0u; j < 8u; j++) s[j] = add(lanes[j], lanes[j + 8u]);
  return tree8(s);
}
