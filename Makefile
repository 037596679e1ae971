# Needs only Go, git, make and, for the race detector, a C compiler; the emulator for arm64
# comes from Debian's packages, which takes root.
# Tools are installed at the versions below into bin/, which git ignores.

LINT_VERSION      := v2.11.4
BENCHSTAT_VERSION := v0.0.0-20260908200009-22c9c6c9d4da

LINT      := bin/golangci-lint-$(LINT_VERSION)
BENCHSTAT := bin/benchstat-$(BENCHSTAT_VERSION)

PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

# Packages in which the tag noasm can change what is run.
NOASM_PACKAGES := $(patsubst %,./%/...,$(wildcard backend model))

# Packages whose goroutines live long and share much, and their tests that have only one.
RACE_PACKAGES := . ./backend/cpu ./bench ./engine ./hub ./prefix ./server ./state
RACE_SKIP     := Generic|RowExact|RoundsOnce|Functions|Blocks|Buffers|Acceptance|BrokenHeads|Imports|Document

# What runs programs for arm64 here: nothing on such a machine, an emulator on Linux.
# Emulation is slow, so it is the tests that compare kernels bit for bit.
ifeq ($(shell go env GOHOSTARCH),arm64)
QEMU :=
else
QEMU := /usr/bin/qemu-aarch64-static
endif
ARM64_TESTS := Bits|Equal|Exact|Rows|Guard|Pack|Quantise

BENCH    ?= .
COUNT    ?= 1
FUZZTIME ?= 10s
SOAK     ?= 60s

# The product is built without cgo, so everything is checked without it; only
# the race detector wants it.
export CGO_ENABLED := 0

STARTED := $(shell date +%s)
stage    = @printf '== %s\n' '$(1)'

# install PACKAGE@VERSION as FILE. The toolchain is the one of this module: a
# linter built by an older Go refuses to read code written for a newer one.
define install
	@mkdir -p bin
	GOFLAGS= GOTOOLCHAIN="$$(go env GOVERSION)+auto" GOBIN="$(CURDIR)/bin" go install $(1)
	@mv bin/$(notdir $(firstword $(subst @, ,$(1)))) $@
endef

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help check build generated test test-noasm test-arm64 test-clients test-agents test-web race soak vet lint fmt fmt-check cross bench bench-gate bench-pages benchstat fuzz tools clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

check: tools fmt-check vet lint generated test test-noasm test-arm64 race soak test-clients test-web bench-pages cross ## everything that must pass before a commit
	@printf '== check: all stages passed in %d s\n' $$(( $$(date +%s) - $(STARTED) ))

build: ## build bin/foretoken
	$(call stage,build: bin/foretoken)
	go build -trimpath -o bin/foretoken ./cmd/foretoken

# Compute threads spin while they wait for each other, so two packages at a time that compute
# on all processors take longer than one after the other.
test: ## run all tests
	$(call stage,test: all packages)
	go test -p 1 ./...

test-noasm: ## run the short tests of the numeric packages without assembly
	$(call stage,test-noasm: generic kernels only)
ifneq ($(NOASM_PACKAGES),)
	go test -p 1 -short -tags noasm $(NOASM_PACKAGES)
endif

test-arm64: $(QEMU) ## run the short tests of the kernels for arm64, emulated on other machines
	$(call stage,test-arm64: NEON kernels)
	$(if $(QEMU),GOOS=linux GOARCH=arm64) go test -short $(if $(QEMU),-exec "$(QEMU) -cpu max") -run '$(ARM64_TESTS)' ./backend/cpu

race: ## run the short tests under the race detector
	$(call stage,race: short tests under the race detector)
	CGO_ENABLED=1 go test -p 1 -race -short -skip '$(RACE_SKIP)' $(RACE_PACKAGES)

soak: ## load an engine at random for a while and look what is left of it; SOAK=60s
	$(call stage,soak: random load for $(SOAK))
	go test ./engine -run TestSoak -soak $(SOAK)

test-clients: build ## talk to the built program with the clients that people use
	$(call stage,test-clients: official clients in Node)
	FORETOKEN_BIN="$(CURDIR)/bin/foretoken" server/clienttest/run

# Not part of check: the packages are 1.5 GB.
test-agents: build ## two turns of five coding agents with the built program
	$(call stage,test-agents: coding agents from the npm registry)
	FORETOKEN_BIN="$(CURDIR)/bin/foretoken" server/agenttest/run

test-web: build ## test the page in Chromium, with a fake server and with the program
	$(call stage,test-web: the page in Chromium)
	FORETOKEN_BIN="$(CURDIR)/bin/foretoken" server/web/test/run

vet: ## vet for amd64 and arm64, and with each build tag
	$(call stage,vet: amd64 and arm64; tags noasm and noembed)
	GOOS=linux GOARCH=amd64 go vet ./...
	GOOS=linux GOARCH=arm64 go vet ./...
	go vet -tags noasm,noembed ./...

lint: $(LINT) ## run the linters
	$(call stage,lint: golangci-lint $(LINT_VERSION))
	$(LINT) run ./...

generated: ## check that the generated assembly is what its generators write
	$(call stage,generated: backend/cpu)
	@mkdir -p bin && sha256sum backend/cpu/*.s >bin/generated.sum
	go generate ./backend/cpu
	@sha256sum --quiet -c bin/generated.sum

fmt: $(LINT) ## format the code in place
	$(LINT) fmt ./...

fmt-check: $(LINT) ## show what fmt would change and fail if it would
	$(call stage,fmt-check: gofumpt and goimports)
	$(LINT) fmt --diff ./...

cross: ## build everything, examples included, for every platform
	$(call stage,cross: $(PLATFORMS))
	@for platform in $(PLATFORMS); do \
		echo "GOOS=$${platform%/*} GOARCH=$${platform#*/} go build ./..."; \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} go build -buildvcs=false ./... || exit 1; \
	done

bench: ## run the benchmarks; BENCH=regexp COUNT=n
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./...

bench-gate: $(BENCHSTAT) ## fail if a benchmark is slower than at a commit; BASE=commit PACKAGES= BENCH= COUNT= LIMIT=5
	@BENCHSTAT=$(BENCHSTAT) sh bench/gate.sh $(BASE)

bench-pages: ## open the pages of foretoken bench in Chromium, which is installed if it is missing
	$(call stage,bench-pages: reports in a browser)
	@sh bench/test/run

benchstat: $(BENCHSTAT) ## compare two benchmark outputs; OLD=file NEW=file
	$(BENCHSTAT) $(OLD) $(NEW)

fuzz: ## run every fuzz target for a moment; FUZZTIME=10s
	@for pkg in $$(go list ./...); do \
		targets=$$(go test -list '^Fuzz' $$pkg) || exit 1; \
		for target in $$(printf '%s\n' "$$targets" | grep '^Fuzz'); do \
			printf '== fuzz: %s %s\n' $$pkg $$target; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done

tools: $(LINT) $(BENCHSTAT) ## install the pinned tools

clean: ## remove what make has built and installed
	rm -rf bin dist

$(QEMU):
	$(call stage,tools: qemu-user-static)
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq qemu-user-static >/dev/null

$(LINT):
	$(call stage,tools: golangci-lint $(LINT_VERSION))
	$(call install,github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION))

$(BENCHSTAT):
	$(call stage,tools: benchstat $(BENCHSTAT_VERSION))
	$(call install,golang.org/x/perf/cmd/benchstat@$(BENCHSTAT_VERSION))
