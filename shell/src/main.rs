//! The `kinglet` binary: hands its arguments to the command line of the library.

fn main() {}
