//! The `kinglet` binary: hands its arguments to the command line of the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    kinglet::cli::main()
}
