// Products of up to four rows with E2M1 codes in groups of 16 with scales of E4M3: nvfp4. matmul.go, fuse.go and experts.go select
// the shapes.
#include "answer.cuh"

FEW(few_4_64_1, NV, 1)
FEW(few_4_64_2, NV, 2)
FEW(few_4_64_4, NV, 4)
ROWS(row_4_64, gated_4_64, NV)
ANSWER(answer_4_64, NV)
