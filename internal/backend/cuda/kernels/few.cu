// Products of up to four rows with integers of 4 bits in groups of 64. matmul.go, fuse.go and experts.go select the
// shapes.
#include "answer.cuh"

FEW(few_4_64_1, BRIEF, 1)
FEW(few_4_64_2, BRIEF, 2)
FEW(few_4_64_4, BRIEF, 4)
ROWS(row_4_64, gated_4_64, BRIEF)
ANSWER(answer_4_64, BRIEF)
