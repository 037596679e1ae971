// Products of up to four rows with E2M1 codes in groups of 32 with scales of bf16: mxfp4. matmul.go, fuse.go and experts.go select
// the shapes.
#include "answer.cuh"

FEW(few_4_64_1, MX, 1)
FEW(few_4_64_2, MX, 2)
FEW(few_4_64_4, MX, 4)
ROWS(row_4_64, gated_4_64, MX)
ANSWER(answer_4_64, MX)
