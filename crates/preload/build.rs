//! Linker arguments of the library.

fn main() {
    // It is initialised before all other libraries, so that their fork handlers are registered later (fork.rs).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rerun-if-changed=build.rs");
}
