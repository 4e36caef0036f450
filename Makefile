# Aurea. `make help` lists the targets.
SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

export CGO_ENABLED = 0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  = -s -w -X github.com/aurea-dev/aurea/internal/cli.version=$(VERSION)
# The commit is in VERSION, and nowhere else: a guest that did not change is the
# same file, for which no root has to be made again.
GOBUILD  = go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'
TOOL     = go tool -modfile=tools/go.mod
# What runs many goroutines is tested a second time under the race detector.
RACE     = go list ./internal/... ./client/... | grep -v -e /internal/e2e -e /internal/arch -e /internal/corpustest -e /internal/build/engine

.PHONY: help up build release package test vet race raced cover lint fmt bench soak crash adopt gen clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: build ## build and start Aurea here; Ctrl-C stops it
	@scripts/need up
	bin/aurea up

build: ## build bin/aurea and the two binaries it starts sandboxes with
	@mkdir -p bin
	$(GOBUILD) -o bin/ ./cmd/aurea-sentry ./cmd/aurea-guest ./cmd/aurea

release: build ## build dist/aurea: one file with everything inside
	@mkdir -p dist
	go run ./internal/driver/gvisor/embedded/pack -o internal/driver/gvisor/embedded bin/aurea-sentry bin/aurea-guest
	$(GOBUILD) -tags embed -o dist/aurea ./cmd/aurea

package: release ## build dist/aurea_VERSION_ARCH.deb
	scripts/package $(VERSION)

bin/docker-compose: tools/compose.mod # for the test that brings up deploy/compose.yaml
	go build -modfile=tools/compose.mod -trimpath -ldflags '-s -w' -o $@ github.com/docker/compose/v2/cmd

bin/versitygw: tools/versitygw.mod # an S3 server, for the tests of blobs in a bucket
	go build -modfile=tools/versitygw.mod -trimpath -ldflags '-s -w' -o $@ github.com/versity/versitygw/cmd/versitygw

test: ## install what the tests need, run every suite
	@scripts/need test
	scripts/test

vet: ## go vet
	go vet ./...

race: ## run the suites under the race detector
	CGO_ENABLED=1 go test -race -timeout 20m $$($(RACE))

raced: # names what race runs
	@$(RACE)

cover: ## write coverage.html
	go test -timeout 20m -coverpkg=./internal/...,./client/... -coverprofile=coverage.out ./...
	go tool cover -html=coverage.out -o coverage.html
	@go tool cover -func=coverage.out | tail -1

lint: ## run the linters
	go tool -modfile=tools/golangci.mod golangci-lint run ./...

fmt: ## format the code
	$(TOOL) gofumpt -l -w cmd internal client

bench: build bin/runsc ## measure; prints ratios and rates, asserts nothing
	bin/aurea bench sandbox
	bin/aurea bench run
	bin/aurea bench queue

soak: build ## ten thousand runs in a row, one in ten hostile; fails when anything leaks
	bin/aurea bench soak

# gVisor's own program, of the version that we link, to compare with.
bin/runsc: go.mod tools/runsc.mod
	@test "$$(grep -o 'gvisor.dev/gvisor v.*' go.mod)" = "$$(grep -o 'gvisor.dev/gvisor v.*' tools/runsc.mod)" || { echo "go.mod and tools/runsc.mod name different versions of gVisor" >&2; exit 1; }
	go build -modfile=tools/runsc.mod -trimpath -ldflags '-s -w' -o $@ gvisor.dev/gvisor/runsc

crash: build ## kill -9 managers and workers and cut connections at 100 random moments under load
	CRASHES=100 go test -count=1 -timeout 60m -run TestCrash -v ./internal/e2e

adopt: build ## kill -9, upgrade and stop a worker under twenty live sandboxes, ten times over
	ADOPTIONS=10 go test -count=1 -timeout 30m -run TestAdoption -v ./internal/e2e

gen: ## regenerate what is generated: OpenAPI, tables, diagrams
	go test ./internal/httpapi ./internal/config ./internal/arch -update

clean: ## remove what was built
	rm -rf bin dist coverage.out coverage.html
