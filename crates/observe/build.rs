//! Compiles the eBPF programs; the loader relocates them against the running kernel's BTF.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let folder = Path::new("bpf").read_dir().expect("bpf/ is part of the crate");
    for entry in folder {
        let source = entry.expect("bpf/ can be listed").path();
        let name = source.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(program) = name.strip_suffix(".bpf.c") {
            compile(&source, &out.join(format!("{program}.bpf.o")));
        }
    }
}

fn compile(source: &Path, object: &Path) {
    libbpf_cargo::SkeletonBuilder::new()
        .source(source)
        .obj(object)
        // Debian keeps <asm/types.h> in the multiarch folder, which clang does not search for the bpf target.
        .clang_args(["-Wall", "-Werror", "-idirafter", "/usr/include/x86_64-linux-gnu"])
        .build()
        .unwrap_or_else(|error| panic!("compiling {} with clang: {error:#}", source.display()));
}
