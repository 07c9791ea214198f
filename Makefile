# What contributors run. The tools are built from the versions pinned in tools/; the first build of each takes a minute or two.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

COUNT ?= 6
BENCH ?= .

# Each module of the workspace on its own, as in CI.
modules = $(shell go list -m -f '{{.Dir}}')

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' Makefile

.PHONY: generate
generate: ## write gen/ anew from proto/
	./scripts/tool.sh buf generate

.PHONY: format
format: ## format Go code and schemas
	./scripts/tool.sh buf format --write
	for dir in $(modules); do (cd "$$dir" && "$(CURDIR)/scripts/tool.sh" golangci-lint fmt); done

.PHONY: lint
lint: ## lint Go code and schemas
	./scripts/tool.sh buf lint
	for dir in $(modules); do (cd "$$dir" && "$(CURDIR)/scripts/tool.sh" golangci-lint run); done

.PHONY: test
test: ## run all tests; ARGS go to go test
	./scripts/test.sh $(ARGS)

.PHONY: bench
bench: ## run the benchmarks (BENCH, a pattern) COUNT times, into bench.txt, and sum them up
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) work | tee bench.txt
	./scripts/tool.sh benchstat bench.txt

.PHONY: check
check: ## all that CI checks
	bash .ci/run
