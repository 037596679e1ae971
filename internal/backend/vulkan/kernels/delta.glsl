// What the kernels of a Gated DeltaNet layer have in common: its widths, and the output of delta_mix, one list after another in
// memory: delta.go has its size.
//   query, key   [rows][keyHeads][keys]
//   value        [rows][valueHeads][values]
//   kq           [rows][keyHeads]: key·query
//   decay, beta  [rows][valueHeads]
int channels(int keyHeads, int valueHeads, int keys, int values) { return 2 * keyHeads * keys + valueHeads * values; }

// sequence is the sequence of a row, or one of no rows.
Recurrent memoryOf(Call call, Seq s, int layer) { return call.delta.v[s.deltas + layer]; }

// tokenInput is channel c of token i of a sequence, before the convolution. Those before the first token of the call are in the tail.
float tokenInput(Seq s, Recurrent mem, Floats qkv, int stride, int taps, int i, int c) {
  if (i >= 0) return qkv.v[(s.first + i) * stride + c];
  return mem.tail.v[(s.accepted + taps - 1 + i) * mem.tailStride + c];
}
