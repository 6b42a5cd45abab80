# Each target first installs what it needs (scripts/need), and asks for root only where it must. Programs are built as the caller,
# never as root.

PREFIX ?= /usr/local
PYTHON ?= python3
FUZZ_SECONDS ?= 60
# make install BUILT=DIR installs what was built in DIR, and builds nothing.
BUILT :=
# These two are quoted for the shell, as their paths may have spaces.
PROGRAMS := "$(or $(BUILT),target/release)"
INTO := "$(DESTDIR)$(PREFIX)"
LIBDIR := lib
# `bin` on systems where the two are one.
SBINDIR := sbin
# STRIP= leaves symbols in. A static library keeps those that programs are linked by.
STRIP := -s
# What installs the packages that a target needs. NEED=true installs none: the build of a package must not.
NEED := scripts/need
UNIT := lib/systemd/system/hugepilot.service
# A private directory, where hugepilot searches for it.
PRELOAD := lib/hugepilot/libhugepilot_preload.so
# What a fleet's Prometheus and Grafana take.
RULES := share/hugepilot/prometheus-rules.yml
SCRAPE := share/hugepilot/prometheus.yml
DASHBOARDS := share/hugepilot/grafana
SCHEMA := share/hugepilot/report.schema.json
BASH_COMPLETIONS := share/bash-completion/completions
ZSH_COMPLETIONS := share/zsh/site-functions
FISH_COMPLETIONS := share/fish/vendor_completions.d
# Each function of libhps has the page under its own name, too.
HPS_FUNCTIONS := $(shell sed -n "/^.SH NAME/{n;s/ .- .*//;s/,//g;s/^hps //;p}" crates/hps/man/hps.3)
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

# rustup's directory, for shells that were open before it was installed.
export PATH := $(PATH):$(HOME)/.cargo/bin

BUILD_NEEDS := clang libelf-dev zlib1g-dev pkg-config libc6-dev
BROWSER := chromium
VM_NEEDS := qemu-system-x86 busybox-static cpio jq e2fsprogs
KERNEL_NEEDS := flex bison bc xz-utils dwarves
# For containerd's API.
KUBE_BUILD_NEEDS := protobuf-compiler
KUBE_NEEDS := etcd-server containerd runc containernetworking-plugins openssl curl podman redis-server redis-tools memcached python3
WINDOWS_NEEDS := gcc-mingw-w64-x86-64 wine
WINDOWS_TARGET := x86_64-pc-windows-gnu
TEST_NEEDS := memcached redis-server gcc g++ valgrind $(VM_NEEDS)
DEMO_NEEDS := memcached libmemcached-tools python3
BENCH_NEEDS := $(DEMO_NEEDS) redis-server
SERVER_NEEDS := postgresql mariadb-server sysbench gunicorn apache2-utils redis-tools
PACKAGE_NEEDS := debhelper dpkg-dev python3
# Alternatives to compare with; a missing one is left out of the comparison, which says so.
PEER_NEEDS := libhugetlbfs0 libjemalloc2 libmimalloc2.0

SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
INSTALL_SUDO := $(if $(DESTDIR),,$(if $(filter /usr%,$(PREFIX)),$(SUDO)))
# Runs only the tests as root, so the files that cargo writes stay the caller's.
RUNNER := $(if $(SUDO),$(shell command -v sudo > /dev/null && echo sudo -E))
BENCH := $(SUDO) target/release/hugepilot-bench
RESEARCH := $(SUDO) target/release/hugepilot-research
# The agent for Kubernetes has as many dependencies as all the rest: who does not run Kubernetes need not build them.
WITHOUT_KUBE := --workspace --exclude hugepilot-kube
PYTHON_TOOLS := $(CURDIR)/target/python/bin
# Clients of libhps, which learn from lists for some 15 s.
CLIENTS := --wait 20 --configurations \
  default,always,own,hugepilot,libhps-idle,libhps,libhps-tenth,piloted-tenth,ideal,default-again

.PHONY: help
help: ## list the targets (default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Only what it runs, and without PNG, for which forty crates more are built. What measures is not what is measured, and
# takes a minute to optimize. Installing and building count.
BEGAN := $(shell date +%s)
.PHONY: demo
demo: can-be-root deps-build ## memcached before and after, in a few minutes
	cargo build --locked --release --no-default-features -p hugepilot -p hugepilot-bench \
	  --config profile.release.package.hugepilot-bench.opt-level=1
	@$(NEED) $(DEMO_NEEDS) || true
	@$(SUDO) scripts/demo $(BEGAN)

.PHONY: build
build: deps-build ## the release binaries, in target/release
	cargo build --locked --release $(WITHOUT_KUBE)

# What `make install` installs, and nothing that measures it. FEATURES=png draws pictures as PNG, too. Packages do, and
# have the profile `dist`: smaller, but minutes more to build. libbpf is built by a Makefile of its own, which would
# take DESTDIR and PREFIX for its own, too.
PROFILE := release
FEATURES :=
.PHONY: programs
programs: deps-build
	env -u MAKEFLAGS -u DESTDIR -u PREFIX -u LIBDIR cargo build --locked --profile $(PROFILE) --no-default-features \
	  $(FEATURES:%=--features hugepilot/%) -p hugepilot -p daemon -p hps -p hugepilot-preload

.PHONY: test
test: deps-build deps-test deps-windows ## every test; those on the running kernel need root, those on other kernels QEMU, those of Windows Wine
	@[ -z "$(SUDO)" ] || [ -n "$(RUNNER)" ] || echo "Not root, and no sudo here: tests that need root say that they skip."
	$(if $(RUNNER),CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$(RUNNER)") cargo test --locked $(WITHOUT_KUBE)
	tests/vm/run
	$(if $(RUNNER),CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$(RUNNER)") tests/guest/run guest_in_qemu::populated
	tests/windows/run

.PHONY: memcached-test
memcached-test: build ## memcached with libhps: its own tests, and a client that watches its items move
	integrations/memcached/build --test

.PHONY: python-test
python-test: deps-rust ## the Python package, built and installed into target/python: its tests, its types, its format
	@$(NEED) gcc libc6-dev python3-venv
	$(PYTHON) -m venv target/python
	target/python/bin/pip install --quiet './python[test]'
	cd python && $(PYTHON_TOOLS)/pytest
	cd python && $(PYTHON_TOOLS)/mypy examples tests && $(PYTHON_TOOLS)/stubtest hugepilot
	cd python && $(PYTHON_TOOLS)/ruff check && $(PYTHON_TOOLS)/ruff format --check

.PHONY: soak
soak: deps-build ## a daemon among changing programs, and one under attack, each for SOAK_SECONDS=600; needs root
	$(if $(RUNNER),CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$(RUNNER)") scripts/soak

.PHONY: mutants
mutants: deps-build ## break the engine line by line, and show that the simulation finds each; some minutes
	scripts/mutants

.PHONY: vm-test
vm-test: deps-build deps-test ## live tests on Debian's kernels in QEMU only; TEST=heat::NAME for one
	tests/vm/run $(TEST)

.PHONY: supported
supported: deps-build deps-test ## the table of what kernels offer, in docs/reference/supported.md; boots Debian's in QEMU
	tests/vm/run supported

.PHONY: guest-test
guest-test: deps-build deps-test ## live tests of promote --guest, with a guest of 2 GiB in QEMU; needs root; TEST=guest_in_qemu::NAME for one
	$(if $(RUNNER),CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$(RUNNER)") tests/guest/run $(TEST)

.PHONY: vm-unit
vm-unit: deps-build deps-test ## the unit under systemd, on Debian's kernel in QEMU
	@$(NEED) systemd
	tests/vm/run unit

.PHONY: image
image: deps-build ## the container image of hugepilotd and hugepilot-kube, without a container engine; its last line says where
	@$(NEED) $(KUBE_BUILD_NEEDS)
	@scripts/image "$$(scripts/static-programs)"

.PHONY: sbom
sbom: deps-rust ## what is linked into the programs of the image, as CycloneDX has it, in target/; installs cargo-cyclonedx for it
	@cargo cyclonedx --version > /dev/null 2>&1 || cargo install --locked cargo-cyclonedx \
	  || { echo "cargo-cyclonedx is missing, and cargo could not install it (see above)" >&2; exit 1; }
	@scripts/sbom target

.PHONY: kube-test
kube-test: deps-build ## the agent's own tests, then containers under Podman, containerd and Docker, and a real Kubernetes with the chart, here; needs root and Go, and at first a quarter of an hour to build it
	@$(NEED) $(KUBE_BUILD_NEEDS)
	cargo clippy --locked -p hugepilot-kube --all-targets -- -D warnings
	cargo test --locked -p hugepilot-kube
	cargo build --locked --release -p hugepilot
	@$(NEED) $(KUBE_NEEDS)
	$(SUDO) tests/kube/engine
	$(SUDO) tests/kube/run

.PHONY: windows
windows: deps-windows-target ## the parts of hugepilot that run on Windows, in target/x86_64-pc-windows-gnu/release
	@$(NEED) gcc-mingw-w64-x86-64
	cargo build --locked --release --target $(WINDOWS_TARGET) -p hps -p hugepilot-sort
	cargo build --locked --release --target $(WINDOWS_TARGET) -p hugepilot-windows --features program
	@cd target/$(WINDOWS_TARGET)/release && ls "$$PWD"/hugepilot.exe "$$PWD"/hugepilot-sort.exe "$$PWD"/hps.dll "$$PWD"/libhps.a

.PHONY: windows-test
windows-test: deps-windows ## the parts that run on Windows, under Wine
	tests/windows/run

.PHONY: vm-idle-page
vm-idle-page: deps-build deps-test ## live tests on a kernel with idle page tracking, built first (five minutes); TEST=idle_page::NAME
	@$(NEED) $(KERNEL_NEEDS)
	kernel=$$(tests/vm/kernel) && KERNEL=$$kernel tests/vm/run $(TEST)

.PHONY: bench
bench: can-be-root build ## the published figures of real programs; takes hours and keeps raw results in bench/runs
	@$(NEED) $(BENCH_NEEDS)
	@$(NEED) $(PEER_NEEDS) || true
	@$(NEED) $(SERVER_NEEDS) || true
	@echo "The published figures take several hours in all; each part says how long it takes, or shows how far it is."
	@echo "Leave the machine alone meanwhile. 'target/release/hugepilot-bench WORKLOAD --quick' takes minutes, and is a quick check."
	$(BENCH) memcached --keep
	$(BENCH) memcached --paper --keep
	if integrations/memcached/build; then \
	  $(BENCH) memcached --paper --keep $(CLIENTS) && $(BENCH) memcached --keep $(CLIENTS); \
	else echo "Left out: memcached with libhps, which cannot be built here (see above)" >&2; fi
	$(BENCH) sweep --pattern sequential --wait 2 --seconds 1 --keep \
	  --configurations default,libhps,tracked,ideal,default-again
	$(BENCH) chase --keep
	$(BENCH) sweep --keep
	$(BENCH) sweep --one-process --rounds 60 --seconds 1 --wait 4 --keep \
	  --configurations default,observed,hugepilot,ideal,default-again
	$(BENCH) memcached --one-process --rounds 40 --wait 10 --keep \
	  --configurations default,observed,hugepilot,ideal,default-again
	$(BENCH) tracker --keep
	$(BENCH) pilot --keep
	$(BENCH) felt memcached --modes default,fast,daemon --host both --keep
	$(BENCH) felt redis --modes default,fast,daemon --keep
	$(BENCH) felt reader --modes default,daemon --keep
	$(BENCH) felt reader-busy --gib 3 --modes default,fast,daemon --keep
	-$(BENCH) postgres --fast --keep
	-$(BENCH) postgres --connections warm --fast --keep
	-$(BENCH) postgres --script connect --fast --keep
	-$(BENCH) postgres --script write --fast --keep
	-$(BENCH) programs --keep
	-$(BENCH) programs --setups default,default-again,always,experts,run-pages,attach,ideal --keep
	$(BENCH) fingerprint --rounds 10 --wait 4 --seconds 5 --keep
	$(BENCH) local --keep
	$(BENCH) io --keep
	$(BENCH) sweep --samples 80 --rounds 6 --keep
	$(BENCH) sweep --samples 400 --rounds 1 --keep

.PHONY: research
research: can-be-root build ## what papers found, by simulations and small models; takes hours and keeps raw results in bench/runs
	@echo "Leave the machine alone meanwhile: not all of it is simulated."
	$(RESEARCH) transpose --processor celeron,pentium4 --measure --keep
	$(RESEARCH) lists --keep
	$(RESEARCH) sort --keep

.PHONY: docs
docs: deps-rust ## the book of docs/, with search, in target/book/docs; installs mdBook for it
	@command -v mdbook > /dev/null || cargo install --locked mdbook@0.4.52 \
	  || { echo "mdBook is missing, and cargo could not install it (see above)" >&2; exit 1; }
	@scripts/book

.PHONY: lint
lint: deps-build deps-lint deps-windows-target ## house rules, format, clippy; for Windows, too
	scripts/house-rules
	cargo fmt --all --check
	cargo clippy --locked $(WITHOUT_KUBE) --all-targets -- -D warnings
	cargo fmt --manifest-path python/Cargo.toml --check
	PYO3_NO_PYTHON=1 PYO3_BUILD_EXTENSION_MODULE=1 cargo clippy --locked --manifest-path python/Cargo.toml -- -D warnings
	tests/windows/run lint

.PHONY: fmt
fmt: deps-lint ## format the sources
	cargo fmt --all
	cargo fmt --manifest-path python/Cargo.toml

.PHONY: fuzz
fuzz: deps-build deps-fuzz ## each parser of what comes from outside for FUZZ_SECONDS=60; installs a nightly Rust and cargo-fuzz for it
	FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

.PHONY: install
install: $(if $(BUILT),,programs) ## hugepilot, hugepilotd, their manual, completions and libraries, unit and dashboard to PREFIX=/usr/local (and DESTDIR)
	@[ -x $(PROGRAMS)/hugepilot-manual ] || { echo "make install: $(PROGRAMS)/hugepilot-manual is missing: build the packages hugepilot, daemon, hps and hugepilot-preload there, or leave BUILT out" >&2; exit 1; }
	$(INSTALL_SUDO) install -D $(STRIP) -m 755 $(PROGRAMS)/hugepilot $(INTO)/bin/hugepilot
	$(INSTALL_SUDO) install -D $(STRIP) -m 755 $(PROGRAMS)/hugepilotd $(INTO)/$(SBINDIR)/hugepilotd
	set -e; manual=$$(mktemp -d); trap 'rm -rf "$$manual"' EXIT; $(PROGRAMS)/hugepilot-manual "$$manual"; \
	for section in 1 5 8; do $(INSTALL_SUDO) install -D -m 644 -t $(INTO)/share/man/man$$section "$$manual"/man$$section/*; done; \
	for program in hugepilot hugepilotd; do \
	  $(INSTALL_SUDO) install -D -m 644 "$$manual"/completions/$$program.bash $(INTO)/$(BASH_COMPLETIONS)/$$program; done; \
	$(INSTALL_SUDO) install -D -m 644 -t $(INTO)/$(ZSH_COMPLETIONS) "$$manual"/completions/_*; \
	$(INSTALL_SUDO) install -D -m 644 -t $(INTO)/$(FISH_COMPLETIONS) "$$manual"/completions/*.fish
	sed 's|/usr/local/sbin/|$(PREFIX)/$(SBINDIR)/|' integrations/systemd/hugepilot.service \
	  | $(INSTALL_SUDO) install -D -m 644 /dev/stdin $(INTO)/$(UNIT)
	$(INSTALL_SUDO) install -D -m 644 -t $(INTO)/$(DASHBOARDS) integrations/grafana/*.json
	$(INSTALL_SUDO) install -D -m 644 integrations/prometheus/rules.yml $(INTO)/$(RULES)
	$(INSTALL_SUDO) install -D -m 644 integrations/prometheus/hugepilot.yml $(INTO)/$(SCRAPE)
	$(INSTALL_SUDO) install -D -m 644 docs/reference/report.schema.json $(INTO)/$(SCHEMA)
	$(INSTALL_SUDO) install -D $(STRIP) -m 644 $(PROGRAMS)/libhps.so $(INTO)/$(LIBDIR)/libhps.so.$(VERSION)
	$(INSTALL_SUDO) ln -sf libhps.so.$(VERSION) $(INTO)/$(LIBDIR)/libhps.so.0
	$(INSTALL_SUDO) ln -sf libhps.so.0 $(INTO)/$(LIBDIR)/libhps.so
	$(INSTALL_SUDO) install -D -m 644 $(PROGRAMS)/libhps.a $(INTO)/$(LIBDIR)/libhps.a
	$(if $(STRIP),$(INSTALL_SUDO) strip --strip-debug $(INTO)/$(LIBDIR)/libhps.a)
	$(INSTALL_SUDO) install -D -m 644 crates/hps/include/hps.h $(INTO)/include/hps.h
	$(INSTALL_SUDO) install -D -m 644 crates/hps/man/hps.3 $(INTO)/share/man/man3/hps.3
	set -e; for function in $(HPS_FUNCTIONS); do $(INSTALL_SUDO) ln -sf hps.3 $(INTO)/share/man/man3/$$function.3; done
	$(INSTALL_SUDO) install -D $(STRIP) -m 644 $(PROGRAMS)/libhugepilot_preload.so $(INTO)/$(PRELOAD)
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' crates/hps/hps.pc.in \
	  | $(INSTALL_SUDO) install -D -m 644 /dev/stdin $(INTO)/$(LIBDIR)/pkgconfig/hps.pc
	$(if $(DESTDIR),,-$(INSTALL_SUDO) ldconfig)

.PHONY: uninstall
uninstall: ## remove it
	! [ -d $(INTO) ] || { cd $(INTO) && $(INSTALL_SUDO) rm -f bin/hugepilot $(SBINDIR)/hugepilotd $(UNIT) $(RULES) $(SCRAPE) $(DASHBOARDS)/*.json share/hugepilot/grafana.json $(SCHEMA) $(PRELOAD) include/hps.h \
	  $(LIBDIR)/libhps.so.$(VERSION) $(LIBDIR)/libhps.so.0 $(LIBDIR)/libhps.so $(LIBDIR)/libhps.a $(LIBDIR)/pkgconfig/hps.pc \
	  share/man/man1/hugepilot.1 share/man/man1/hugepilot-*.1 share/man/man3/hps.3 $(HPS_FUNCTIONS:%=share/man/man3/%.3) share/man/man5/hugepilot.toml.5 share/man/man8/hugepilotd.8 \
	  $(BASH_COMPLETIONS)/hugepilot $(ZSH_COMPLETIONS)/_hugepilot $(FISH_COMPLETIONS)/hugepilot.fish \
	  $(BASH_COMPLETIONS)/hugepilotd $(ZSH_COMPLETIONS)/_hugepilotd $(FISH_COMPLETIONS)/hugepilotd.fish; }
	for each in $(DASHBOARDS) share/hugepilot lib/hugepilot; do \
	  ! [ -d $(INTO)/$$each ] || $(INSTALL_SUDO) rmdir --ignore-fail-on-non-empty $(INTO)/$$each; done

.PHONY: deb
deb: ## Debian packages of what `make install` installs: command, daemon, libhps, its development files; the last lines say where
	@$(MAKE) programs PROFILE=dist FEATURES=png
	@$(NEED) $(PACKAGE_NEEDS)
	@scripts/deb target/dist

.PHONY: package-test
package-test: can-be-root ## the Debian packages in a clean Debian: installed by apt, run, purged; downloads 100 MB
	@$(MAKE) programs PROFILE=dist FEATURES=png
	@$(NEED) $(PACKAGE_NEEDS) debootstrap
	packages=$$(scripts/deb target/dist) && $(SUDO) tests/package/chroot $$packages

.PHONY: msrv
msrv: deps-build ## everything builds with the Rust that Cargo.toml declares; installs it by rustup
	scripts/msrv

.PHONY: publish-test
publish-test: deps-build ## the crates that are meant for others, as crates.io would take them; uploads nothing
	cargo publish --workspace --dry-run --locked

# Dependencies of the targets above.

.PHONY: deps-rust
deps-rust:
	@command -v cargo > /dev/null || { \
	  echo "cargo is missing: install Rust from https://rustup.rs (and run make as yourself, not with sudo)" >&2; exit 1; }

.PHONY: deps-build
deps-build: deps-rust
	@$(NEED) $(BUILD_NEEDS)

.PHONY: deps-test
deps-test:
	@$(NEED) $(TEST_NEEDS)
	@$(NEED) $(BROWSER) || echo "Without a browser the tests of the HTML page say that they skip."
	@$(NEED) $(PACKAGE_NEEDS) lintian groff-base || echo "Without them the tests of the package and of its manual say that they skip."

.PHONY: deps-windows
deps-windows: deps-windows-target
	@$(NEED) $(WINDOWS_NEEDS)

.PHONY: deps-windows-target
deps-windows-target: deps-rust
	@[ -d "$$(rustc --print sysroot)/lib/rustlib/$(WINDOWS_TARGET)/lib" ] || rustup target add $(WINDOWS_TARGET) \
	  || { echo "Rust for $(WINDOWS_TARGET) is missing, and rustup could not add it (see above)" >&2; exit 1; }

.PHONY: deps-lint
deps-lint: deps-rust
	@cargo fmt --version > /dev/null 2>&1 && cargo clippy --version > /dev/null 2>&1 \
	  || rustup component add rustfmt clippy \
	  || { echo "rustfmt and clippy are missing, and rustup could not add them (see above)" >&2; exit 1; }

.PHONY: deps-fuzz
deps-fuzz: deps-rust
	@$(NEED) g++
	@cargo +nightly --version > /dev/null 2>&1 || rustup toolchain install nightly --profile minimal \
	  || { echo "a nightly Rust is missing, and rustup could not install it (see above)" >&2; exit 1; }
	@cargo +nightly fuzz --version > /dev/null 2>&1 || cargo install --locked cargo-fuzz \
	  || { echo "cargo-fuzz is missing, and cargo could not install it (see above)" >&2; exit 1; }

.PHONY: can-be-root
can-be-root:
	@[ -z "$(SUDO)" ] || command -v sudo > /dev/null || { \
	  echo "This needs root, to read page tables and promote memory, and there is no sudo here: run it as root" >&2; exit 1; }
