//! Compiles the eBPF programs; the loader relocates them against the running kernel's BTF.

use std::env;
use std::path::PathBuf;

fn main() {
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("page_walk.bpf.o");
    println!("cargo::rerun-if-changed=bpf");
    libbpf_cargo::SkeletonBuilder::new()
        .source("bpf/page_walk.bpf.c")
        .obj(&object)
        // Debian keeps <asm/types.h> in the multiarch folder, which clang does not search for the bpf target.
        .clang_args(["-Wall", "-Werror", "-idirafter", "/usr/include/x86_64-linux-gnu"])
        .build()
        .unwrap_or_else(|error| panic!("compiling bpf/page_walk.bpf.c with clang: {error:#}"));
}
