package main

const avx2Doc = ""
const avx2Rows = 4

func avx2(s *source) {}
