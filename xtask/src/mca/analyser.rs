//! Cycles of a piece of code by llvm-mca, for the two cores of the boards.

use crate::sh::{Context, Failure, Outcome};
use crate::symbols::LLVM_PACKAGE;
use std::io::Write;
use std::process::{Command, Stdio};

/// The analyser: its versions differ in what they know of the CPUs.
pub const MCA: &str = "llvm-mca-22";

/// A core as LLVM models it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Core {
    /// Cortex-A76, by the model of its sibling, the Neoverse N1, with the A76's dispatch of four.
    A76,
    /// Cortex-A55, in order.
    A55,
}

impl Core {
    fn args(self) -> &'static [&'static str] {
        match self {
            Core::A76 => &["-mtriple=aarch64", "-mcpu=neoverse-n1", "-dispatch=4"],
            Core::A55 => &["-mtriple=aarch64", "-mcpu=cortex-a55"],
        }
    }
}

/// Cycles for one pass of `code` among many, one after the other.
///
/// # Errors
/// No analyser, or code that it does not take.
pub fn cycles(core: Core, code: &str) -> Outcome<f64> {
    let passes = (20_000 / code.lines().count().max(1)).max(10);
    let mut command = Command::new(MCA);
    command.args(core.args()).args([format!("-iterations={passes}"), "-instruction-info=0".into()]);
    command.args(["-resource-pressure=0"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|_| {
        Failure::new(format!("no {MCA}: install Debian's package {LLVM_PACKAGE} (`cargo xtask setup`)"))
    })?;
    let mut input = child.stdin.take().ok_or_else(|| Failure::new("no pipe to the analyser"))?;
    let code = code.to_owned();
    let writer = std::thread::spawn(move || input.write_all(code.as_bytes()));
    let output = child.wait_with_output().context(MCA)?;
    let written = writer.join().map_err(|_| Failure::new("the analyser's writer failed"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().find(|l| l.contains("error")).unwrap_or("no reason given");
        return Err(Failure::new(format!("{MCA} does not take the code: {first}")));
    }
    written.context(MCA)?;
    let report = String::from_utf8_lossy(&output.stdout);
    per_pass(&report).ok_or_else(|| Failure::new(format!("{MCA} prints no total of cycles")))
}

/// Total cycles over passes, from the report's summary.
fn per_pass(report: &str) -> Option<f64> {
    let number = |name: &str| -> Option<f64> {
        let line = report.lines().find_map(|l| l.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    let (passes, total) = (number("Iterations:")?, number("Total Cycles:")?);
    (passes > 0.0).then_some(total / passes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_read() {
        let report =
            "Iterations:        50\nInstructions:      100\nTotal Cycles:      75\nTotal uOps: 100\n";
        assert_eq!(per_pass(report), Some(1.5));
        assert_eq!(per_pass("Iterations: 50\n"), None);
        assert_eq!(per_pass("Iterations: 0\nTotal Cycles: 75\n"), None);
    }
}
