# make test needs Go alone. make check is everything: it also builds its tools, from the module in
# tools/, and looks for Node, Chromium, an emulator of arm64 and, for the race detector, a C
# compiler. On Debian as root it installs what is missing. Elsewhere a stage that cannot run is
# left out and named in the last line. STRICT=1, the default with CI=true, makes that an error.

# Every module of this repository.
MODULES := . internal/server/clienttest internal/batch/jetstream/natstest/server tools internal/backend/cpu/kernel/_gen

# What make cross builds, and what make dist packs: with the tags cuda and vulkan, a program that needs the
# system's C library and finds the drivers.
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
ARCHIVES  := $(PLATFORMS) linux/amd64:cuda linux/arm64:cuda windows/amd64:cuda linux/amd64:cuda,vulkan windows/amd64:cuda,vulkan

# What lint checks beside this machine's: every file that this machine does not compile, so each system,
# each processor and each build tag once, except race, which the stage race compiles. All platforms: make cross.
VARIANTS := linux/arm64:emulated,cuda,long,vulkan windows/arm64:noasm,noembed,cuda,vulkan darwin/amd64:cuda,evex,vulkan

# Tests compute on one processor each, and as many packages and one more run beside each other: threads of the
# models in tests spend most of their time waiting for each other, and tests of programs and servers wait for
# those. Tests that are about threads say how many.
JOBS ?= $(shell expr 1 + `getconf _NPROCESSORS_ONLN`)

# Packages with a list of tests for the race detector.
RACE_PACKAGES := . $(patsubst %/race_test.go,./%,$(filter-out race_test.go,$(shell git ls-files --cached --others --exclude-standard '*race_test.go' 2>/dev/null)))

LINT    := bin/lint
GOFUMPT := bin/gofumpt

STRICT   ?= $(if $(CI),1)
BENCH    ?= .
COUNT    ?= 1
FUZZTIME ?= 10s
SOAK     ?= 60s

# The product is built without cgo, so everything is checked without it; only
# the race detector wants it.
export CGO_ENABLED := 0

stage = @printf '== %s\n' '$(1)'

# build PACKAGE of the module tools as $@. Go's cache knows whether there is anything to do.
tool = @mkdir -p bin && go build -C tools -o ../$@ $(1)

# What looks at code holds much and soon ends: less garbage collection takes a quarter off its time.
LARGE := GOGC=400

# on COMMAND for some platforms.
on = @for platform in $(2); do echo "$$platform: $(1)"; GOOS=$${platform%/*} GOARCH=$${platform\#*/} $(1) || exit 1; done

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help check nightly build generated test test-tools test-noasm test-sets test-arm64 test-cuda sanitize-cuda test-vulkan kernels kernels-vulkan test-sdks test-deploy test-clients test-agents test-web screenshots race soak long \
	lint lint-sdks fmt fmt-check cross dist bench bench-gate bench-pages benchstat fuzz smoke clean \
	bin/lint bin/gofumpt bin/benchstat bin/dist

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The stages of check, each with what it needs besides Go: tools/need.sh.
# Those in BESIDE run beside the others: they wait for a browser, compute on one processor, or compile what no other
# stage does.
# build comes early: two stages that find the cache empty at once compile the same twice.
CHECK := fmt-check:tools build lint:tools test-tools:tools generated test test-deploy
BESIDE := test-arm64:qemu test-clients:node,npm-clients test-web:node,npm-pages,chromium bench-pages:node,npm-pages,chromium test-noasm test-sets test-vulkan:lavapipe race:cc

check: ## everything that must pass before a commit; STRICT=1: no stage may be left out; KEEP=1: go on after failures
	@MAKE='$(MAKE)' STRICT='$(STRICT)' KEEP='$(KEEP)' sh tools/check.sh check $(CHECK) -- $(BESIDE)

nightly: ## check, and what takes long: the Go clients, whole repertoires, soak, ten thousand sockets, fuzzing, all platforms
	@MAKE='$(MAKE)' STRICT='$(STRICT)' KEEP='$(KEEP)' sh tools/check.sh nightly $(CHECK) lint-sdks:tools,sdks test-sdks:sdks long soak fuzz cross smoke -- $(BESIDE)

build: ## build bin/foretoken
	$(call stage,build: bin/foretoken)
	go build -o bin/foretoken ./cmd/foretoken

test: ## run all tests of the library and the program; needs Go alone
	$(call stage,test: all packages)
	@go run -C internal/batch/jetstream/natstest/server . >/dev/null # once, before two packages build it at a time
	GOMAXPROCS=1 go test -vet off -timeout 30m -p $(JOBS) ./...

# Models need no tests here: the portable kernels are in every build, and conformance compares each instruction set with them.
test-noasm: ## run the listed tests of the kernels without assembly
	$(call stage,test-noasm: portable code only)
	GOMAXPROCS=1 go test -vet off -p 1 -short -tags noasm -run '^TestPortable$$' ./internal/backend/cpu/kernel ./internal/backend/cpu

# AVX-VNNI is tested by test where the processor has it. Elsewhere the tag gives its kernels the encoding of AVX-512, whose
# instructions compute the same. The list says which sets no test has run.
test-sets: ## test the kernels of AVX-VNNI in the encoding of AVX-512, and list the instruction sets that this machine tests
	$(call stage,test-sets: AVX-VNNI)
	GOMAXPROCS=1 go test -vet off -short -tags evex -v -run '^(TestSetsThatRun|TestInteger|TestBlocks|TestSeveralTurns|TestCoded|TestDotProducts)' ./internal/backend/cpu/kernel

# What runs programs for arm64 here: nothing on such a machine, an emulator on Linux.
test-arm64: ## run the listed tests of the kernels for arm64, emulated on other machines; TAGS=long: more cases
	$(call stage,test-arm64: NEON kernels)
	@sh tools/need.sh qemu
	@qemu=$$(sh tools/need.sh --path qemu); if [ "$$qemu" = native ]; then exec=; else exec="$$qemu -cpu max"; fi; \
	GOOS=$$(go env GOHOSTOS) GOARCH=arm64 go test -vet off -short -timeout 30m -tags emulated,$(TAGS) -exec "$$exec" -run '^TestKernels$$' ./internal/backend/cpu/... ./internal/backend/backendtest

# Not part of check: needs an NVIDIA GPU, and that there is none is an error. Without one the same
# tests run on an interpreter, as part of test.
test-cuda: sanitize-cuda ## run the tests of the CUDA backend and the laws of the engine on the machine's GPU, and under sanitizers
	$(call stage,test-cuda: on the GPU)
	go test -vet off -count 1 -tags cuda ./internal/backend/cuda/...
	FORETOKEN_TEST_DEVICE=cuda go test -vet off -count 1 -tags cuda -skip '^TestOpenPeakMemory$$' $$(git ls-files --cached --others --exclude-standard '*/cuda_test.go' | sed 's|\(.*\)/.*|./\1|')
	go test -vet off -count 1 -tags cuda -run 'Device' .

# Racecheck does not know barrier.cta.arrive, by which relays hand on: docs/cuda.md has a program that shows it. What it would
# look for in them the interpreter finds, as part of test.
SANITIZERS := memcheck synccheck racecheck
racecheck_FLAGS := $(foreach kernel,relay_ few_4_ row_4_ one_ gated_4_ answer_4_,--kernel-name-exclude kernel_substring=$(kernel))

sanitize-cuda: ## run the tests of the CUDA backend under NVIDIA's compute-sanitizer, which comes with the CUDA toolkit
	$(call stage,sanitize-cuda: $(SANITIZERS))
	go test -vet off -c -tags cuda -o bin/cuda.test ./internal/backend/cuda
	cd internal/backend/cuda && $(foreach tool,$(SANITIZERS),compute-sanitizer --tool $(tool) --error-exitcode 1 $($(tool)_FLAGS) "$(CURDIR)/bin/cuda.test" -test.short -test.skip "^TestRoundsAllocateNothing$$" -test.timeout 30m &&) true

# Level 1 is that of lavapipe, Mesa's driver for processors. LEVEL=-1 takes the first level that is exact on the device.
LEVEL ?= 1
test-vulkan: ## run the tests of the Vulkan backend on the machine's first Vulkan device, by default at the level of Mesa's lavapipe; LEVEL=n TAGS=long
	$(call stage,test-vulkan: level $(LEVEL))
	@sh tools/need.sh lavapipe
	GOMAXPROCS=1 go test -vet off -p 1 -tags vulkan ./internal/backend/vulkan/driver ./internal/backend/vulkan/spirv
	GOMAXPROCS=1 go test -vet off -timeout 30m -tags vulkan,$(TAGS) ./internal/backend/vulkan -level $(LEVEL)

kernels: ## compile the CUDA kernels to PTX; NVCC=path of nvcc, of CUDA 11.8 for what is committed (kernels/Dockerfile)
	internal/backend/cuda/kernels/build.sh

kernels-vulkan: ## compile the Vulkan kernels to SPIR-V; GLSLANG=path of glslangValidator 14 or later
	internal/backend/vulkan/kernels/build.sh

# Most of this stage is compiling, the standard library too: without debug information it takes a
# tenth less, without inlining a third. The inner loops have it, and the detector does not watch them: most
# are assembly, which it cannot, and the portable ones are slow enough without it. Processes that end do
# not wait a second for races. A package that uses sync.Map must not be among them: its copy of that generic code, whose atomics
# the detector then does not see, may be the one that is linked, and races are found where there are none.
QUIET := ./internal/backend/cpu/kernel ./internal/exactmath ./internal/dtype
race: ## run the listed tests (race_test.go) under the race detector
	$(call stage,race: tests listed in race_test.go)
	@sh tools/need.sh cc
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 go test -vet off -race -tags netgo,osusergo -gcflags 'all=-dwarf=false -l' \
		$(foreach package,$(QUIET),-gcflags '$(package)=-dwarf=false -race=false') -short -run '^TestRace$$' $(RACE_PACKAGES)

soak: ## load an engine at random for a while, and leave ten thousand connections idle; SOAK=60s
	$(call stage,soak: random load for $(SOAK) and idle connections)
	go test ./internal/engine -run '^TestSoak$$' -soak $(SOAK) -timeout 0
	go test ./internal/server -run '^TestIdleConnections$$' -sockets 10000

long: ## run the tests that have a longer version in it
	$(call stage,long: tests with the tag long)
	go test -p 1 -tags long $$(git grep -l '^//go:build long' -- '*_test.go' | sed 's|\(.*\)/.*|./\1|' | sort -u)
	$(MAKE) --no-print-directory test-arm64 TAGS=long

test-tools: ## test the linter and the scripts of check
	$(call stage,test-tools: the module tools)
	cd tools && go test -vet off ./...

# Not part of check: compiling these clients takes longer than all of ours. Those for Node are.
test-sdks: ## talk to the server with the Go clients of the protocols' makers
	$(call stage,test-sdks: official clients in Go)
	cd internal/server/clienttest && go test ./...

test-deploy: ## check the manifests of deploy/ against what the program does
	$(call stage,test-deploy: manifests)
	cd internal/server/clienttest && go test -vet off ./deploy

test-clients: build ## talk to the built program with the clients that people use
	$(call stage,test-clients: official clients in Node)
	FORETOKEN_BIN="$(CURDIR)/bin/foretoken" internal/server/clienttest/run

# Not part of check: the packages are 1.5 GB.
test-agents: build ## two turns of five coding agents with the built program
	$(call stage,test-agents: coding agents from the npm registry)
	FORETOKEN_BIN="$(CURDIR)/bin/foretoken" internal/server/agenttest/run

test-web: build ## test the page in Chromium, with a fake server and with the program
	$(call stage,test-web: the page in Chromium)
	FORETOKEN_BIN="$(CURDIR)/bin/foretoken" internal/server/web/test/run

# Not part of check: rates in the picture are never twice the same.
screenshots: build ## take the picture of the page for the README
	@sh tools/need.sh node npm-pages chromium
	FORETOKEN_BIN="$(CURDIR)/bin/foretoken" CHROMIUM="$$(sh tools/need.sh --path chromium)" node internal/server/web/test/screenshot.js docs/img/page.png

lint: $(LINT) ## vet and lint every module but the one that needs the Go clients; check types and vet for every platform and build tag
	$(call stage,lint: what tools/lint checks)
	@$(LARGE) $(LINT) $(filter-out internal/server/clienttest,$(MODULES)) -- $(VARIANTS)

lint-sdks: $(LINT) ## vet and lint the tests with the Go clients
	$(call stage,lint-sdks: what tools/lint checks)
	@$(LARGE) $(LINT) internal/server/clienttest

generated: ## check that what is generated is what its generators write
	$(call stage,generated: in a copy of the tree)
	@sh tools/generated.sh

fmt: $(GOFUMPT) ## format the code in place
	$(GOFUMPT) -w $(MODULES)

fmt-check: $(GOFUMPT) ## list what fmt would change and fail if it would
	$(call stage,fmt-check: gofumpt)
	@found=$$($(GOFUMPT) -l $(MODULES)); [ -z "$$found" ] || { printf 'make fmt would change:\n%s\n' "$$found"; exit 1; }

cross: ## build everything, examples included, for every platform
	$(call stage,cross: $(PLATFORMS))
	$(call on,go build -buildvcs=false ./...,$(PLATFORMS))

dist: bin/dist ## pack builds for every platform, with and without CUDA and Vulkan, into dist/, with checksums and licenses
	$(call stage,dist: $(ARCHIVES))
	@bin/dist $(ARCHIVES)

bench: ## run the benchmarks; BENCH=regexp COUNT=n
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./...

bench-gate: bin/benchstat ## fail if a benchmark is slower than at a commit; BASE=commit PACKAGES= BENCH= COUNT= LIMIT=5
	@BENCHSTAT=bin/benchstat sh internal/bench/gate.sh $(BASE)

bench-pages: build ## open the pages of foretoken bench in Chromium
	$(call stage,bench-pages: reports in a browser)
	@FORETOKEN_BIN="$(CURDIR)/bin/foretoken" sh internal/bench/test/run

benchstat: bin/benchstat ## compare two benchmark outputs; OLD=file NEW=file
	bin/benchstat $(OLD) $(NEW)

fuzz: ## run every fuzz target for a moment; FUZZTIME=10s
	@for pkg in $$(go list ./...); do \
		targets=$$(go test -list '^Fuzz' $$pkg) || exit 1; \
		for target in $$(printf '%s\n' "$$targets" | grep '^Fuzz'); do \
			printf '== fuzz: %s %s\n' $$pkg $$target; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg || exit 1; \
		done; \
	done

smoke: build ## run the main paths of the built program in about a minute, and write a report to send
	$(call stage,smoke: main paths)
	@sh tools/smoke.sh

clean: ## remove what make has built and installed
	rm -rf bin dist

bin/lint:
	$(call tool,./lint)

bin/gofumpt:
	$(call tool,mvdan.cc/gofumpt)

bin/benchstat:
	$(call tool,golang.org/x/perf/cmd/benchstat)

bin/dist:
	$(call tool,./dist)
