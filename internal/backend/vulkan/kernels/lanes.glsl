shared float lanes[64];

// wideSum adds the numbers of the first 64 threads in the tree of exactmath's wide lanes, halves onto halves. All of them get the sum.
float wideSum(float a) {
  uint i = gl_LocalInvocationIndex;
  barrier();
  if (i < 64u) lanes[i] = a;
  for (uint w = 32u; w > 0u; w >>= 1) {
    barrier();
    if (i < w) lanes[i] = add(lanes[i], lanes[i + w]);
  }
  barrier();
  return lanes[0];
}

// sum16 adds the numbers of the first 16 threads in the tree of SumLanes32. All of them get the sum.
float sum16(float a) {
  uint i = gl_LocalInvocationIndex;
  barrier();
  if (i < 16u) lanes[i] = a;
  for (uint w = 8u; w > 0u; w >>= 1) {
    barrier();
    if (i < w) lanes[i] = add(lanes[i], lanes[i + w]);
  }
  barrier();
  return lanes[0];
}
