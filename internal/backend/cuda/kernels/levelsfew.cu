// Products of up to four rows with codes of 4 bits for levels, in groups of 32 with a half each: GGUF's IQ4_NL. matmul.go, fuse.go
// and experts.go select the shapes.
#include "answer.cuh"

FEW(few_4_64_1, NL, 1)
FEW(few_4_64_2, NL, 2)
FEW(few_4_64_4, NL, 4)
ROWS(row_4_64, gated_4_64, NL)
ANSWER(answer_4_64, NL)
