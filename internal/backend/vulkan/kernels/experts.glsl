// A mixture of experts: the choices of rows, sorted by expert into slots, rows of the experts' memory. A job is at most 8 slots of
// an expert.
const int JOB = 8, EXPERTS = 1024;
struct Job { int matrix, first, rows, unused; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Jobs {
  int count, unused[3];
  Job v[];
};
