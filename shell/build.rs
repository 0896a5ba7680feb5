//! Hands the linker script of the log to whoever links with the feature `defmt`.

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../linker/defmt.ld");
    println!("cargo:rerun-if-changed={script}");
    if std::env::var_os("CARGO_FEATURE_DEFMT").is_some() {
        println!("cargo:rustc-link-arg=-T{script}");
    }
}
