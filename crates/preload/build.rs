//! How the library is linked.

fn main() {
    // It begins before all other libraries, so that what they register to be called at a fork is registered later (fork.rs).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rerun-if-changed=build.rs");
}
