// Products of up to four rows with symmetric integers of 4 bits: see symmetric.cu. matmul.go, fuse.go and experts.go
// select the shapes.
#include "answer.cuh"

FEW(few_4_64_1, SYMMETRIC, 1)
FEW(few_4_64_2, SYMMETRIC, 2)
FEW(few_4_64_4, SYMMETRIC, 4)
ROWS(row_4_64, gated_4_64, SYMMETRIC)
ANSWER(answer_4_64, SYMMETRIC)
