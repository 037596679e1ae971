// Products of up to four rows with integers of 4 bits that have zero points, in groups of 64: see zero.cu. matmul.go, fuse.go
// and experts.go select the shapes.
#include "answer.cuh"

FEW(few_4_64_1, ZEROED, 1)
FEW(few_4_64_2, ZEROED, 2)
FEW(few_4_64_4, ZEROED, 4)
ROWS(row_4_64, gated_4_64, ZEROED)
ANSWER(answer_4_64, ZEROED)
