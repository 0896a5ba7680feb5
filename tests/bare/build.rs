//! Hands the memory map to the linker.

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../linker/bare.ld");
    println!("cargo:rerun-if-changed={script}");
    println!("cargo:rustc-link-arg-bins=-T{script}");
}
