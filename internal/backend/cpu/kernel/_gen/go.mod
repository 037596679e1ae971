// The generators of the assembly, a module of their own so that go vet and the linters see them.
module github.com/foretoken/foretoken/internal/backend/cpu/kernel/_gen

go 1.26.0
