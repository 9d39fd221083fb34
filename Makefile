# SPDX-License-Identifier: MIT
# A short front of meson and ninja; the work is in meson.build and scripts/.

.PHONY: build demo check check-all results fuzz install uninstall clean help
.NOTPARALLEL:

FUZZ_SECONDS ?= 3600

build:       ## build into build/ (the command is build/tutti)
	@scripts/deps build
	@test -f build/build.ninja || meson setup build
	@ninja -C build

demo: build  ## unmodified Redis over kernel TCP and over Tutti, a table of both
	@scripts/deps demo
	@scripts/demo

check:       ## the tests: style, unit, sanitizers, integration
	@scripts/deps check
	@scripts/check

check-all:   ## the tests, and those that take long; makes the table of docs/compatibility.md
	@scripts/deps check-all
	@scripts/check --all

results: build  ## every benchmark; writes docs/results/ and README's table
	@scripts/deps results
	@scripts/results

fuzz:        ## hostile peers for FUZZ_SECONDS (3600), hostile inputs and modules for as long
	@scripts/deps check
	@TUTTI_FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/check --fuzz

install: build  ## install below DESTDIR
	@DESTDIR="$(DESTDIR)" meson install -C build --no-rebuild

uninstall:   ## remove what 'make install' has installed below DESTDIR
	@scripts/uninstall build "$(DESTDIR)"

clean:       ## remove everything that was built
	@rm -rf build build-asan build-tsan build-coverage

help:        ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## */  make \1\t/p' Makefile | expand -t 20
