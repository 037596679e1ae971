// The call block: the inputs of kernels that differ between two passes of one shape. call.go
// writes it.
#pragma once

// A sequence of the call: see backend.Seq. pages and deltas are the indices of its first entry in
// Call.page and Call.delta.
struct Seq {  // shared with Go
  int first, n, pos, drafts, accepted, pages, deltas, unused;
};

// The state of a DeltaNet layer for a sequence: see backend.Recurrent. Strides are in numbers.
struct Recurrent {  // shared with Go
  float *state, *tail, *keys, *deltas, *decays;
  int stateStride, tailStride, keysStride, deltasStride, decaysStride, unused;
};

struct Call {  // shared with Go
  int rows, seqs, wants, onlys;
  const int *ids, *want, *only;        // [rows], [wants], [onlys]
  const Seq *seq;                      // [seqs]
  const int *rowSeq;                   // [rows]: -1 for a row of no sequence
  const int *positions;                // [rows][3]
  unsigned char *const *page;          // of all sequences, one after another
  const Recurrent *delta;              // likewise, a layer after the other
};
