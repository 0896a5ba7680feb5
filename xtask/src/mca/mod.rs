//! `cargo xtask mca`: cycles of the inner loops on the boards' cores, against their goals.
//!
//! The code is that of the static binary; a trace of it under QEMU says how often inner loops turn; the
//! analyser of LLVM says how many cycles that takes when all data are in the first-level cache.

mod analyser;
mod board;
mod disassembly;
mod goals;
mod slices;

use crate::cross::{self, Log, Target};
use crate::elf::Elf;
use crate::emulator::Emulator;
use crate::requantized;
use crate::sh::{Context, Failure, Outcome};
use crate::symbols::{Function, Functions};
use crate::{aarch64, sh};
pub use analyser::MCA;

use analyser::Core;
use disassembly::Disassembly;
use goals::{Cut, KERNELS, Kernel, Source, labels};
use slices::Slice;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

const HELP: &str = "\
Usage: cargo xtask mca [OPTIONS]

Builds the static aarch64 binary and prints, for the inner loops of products and attention, the
cycles that llvm-mca gives for a Cortex-A76 (as a Neoverse N1 with dispatch 4) and a Cortex-A55,
and tokens per second modelled from them. Fails when a loop misses its goal (see
xtask/src/mca/goals.rs), or is not found.

  --binary FILE  analyse this program, not stripped, instead of building one
  --only WORD    only loops with this word in their name, without the model
  --code         also print the code of each loop
  --no-goals     print only; missed goals are no failure
";

/// CPU that the loops are traced on: it has the dot product.
const CPU: &str = "cortex-a76";

/// A loop with its cycles.
#[derive(Debug)]
struct Analysed {
    kernel: &'static Kernel,
    slice: Slice,
    dots: u64,
    /// On the A76 and the A55.
    cycles: [f64; 2],
}

impl Analysed {
    fn work(&self) -> f64 {
        self.kernel.work.done(self.dots)
    }

    /// The figures of merit on both cores.
    fn figures(&self) -> [f64; 2] {
        self.cycles.map(|cycles| self.kernel.work.figure(self.work(), cycles).0)
    }

    fn unit(&self) -> &'static str {
        self.kernel.work.figure(1.0, 1.0).1
    }
}

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::Arg::Long;
    use lexopt::ValueExt;
    let mut args = lexopt::Parser::from_args(words);
    let (mut binary, mut only, mut code, mut no_goals) = (None::<PathBuf>, None::<String>, false, false);
    while let Some(arg) = args.next()? {
        match arg {
            Long("binary") => binary = Some(args.value()?.into()),
            Long("only") => only = Some(args.value()?.string()?),
            Long("code") => code = true,
            Long("no-goals") => no_goals = true,
            Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let program = match binary {
        Some(path) => path,
        // The one with symbols: its code is that of the file that is shipped.
        None => cross::build(Target::Aarch64, None, Log::Frames)?.symbols,
    };
    let wanted = |kernel: &&Kernel| only.as_ref().is_none_or(|word| kernel.label.contains(word.as_str()));
    let kernels: Vec<&'static Kernel> = KERNELS.iter().filter(wanted).collect();
    let (analysed, mut faults) = analyse(&program, &kernels, code)?;
    print!("{}", table(&analysed));
    if only.is_none() {
        faults.extend(attention(&analysed));
        print!("{}", board::text(&|label| figure_of(&analysed, label)));
    }
    faults.extend(analysed.iter().filter_map(missed));
    match faults.is_empty() || no_goals {
        true => {
            faults.iter().for_each(|fault| eprintln!("mca: {fault}"));
            Ok(())
        }
        false => Err(Failure::new(format!("mca: {}", faults.join("; ")))),
    }
}

/// The figures of a loop by its label.
fn figure_of(analysed: &[Analysed], label: &str) -> Option<[f64; 2]> {
    analysed.iter().find(|a| a.kernel.label == label).map(Analysed::figures)
}

/// Says that a loop misses its goal.
fn missed(a: &Analysed) -> Option<String> {
    let (goal, [figure, _]) = (a.kernel.goal?, a.figures());
    let reached = a.kernel.work.reaches(figure, goal);
    (!reached).then(|| format!("{} has {figure:.2} {}, the goal is {goal}", a.kernel.label, a.unit()))
}

/// Prints attention as a whole; says so if it misses its goal. Both products have the same size.
fn attention(analysed: &[Analysed]) -> Option<String> {
    let both = (figure_of(analysed, labels::SCORES)?, figure_of(analysed, labels::VALUES)?);
    let [a76, a55] = [0, 1].map(|core| 2.0 / (1.0 / both.0[core] + 1.0 / both.1[core]));
    let goal = goals::ATTENTION;
    println!("attention, both products: {a76:.2} MAC/cycle (A55 {a55:.2}), the goal is {goal}");
    (a76 < goal).then(|| format!("attention has {a76:.2} MAC/cycle, the goal is {goal}"))
}

/// Traces and analyses loops; also says which of them could not be found.
fn analyse(
    program: &Path,
    kernels: &[&'static Kernel],
    print_code: bool,
) -> Outcome<(Vec<Analysed>, Vec<String>)> {
    let bytes = fs::read(program).context(program.display())?;
    let functions = Functions::of(&Elf::parse(&bytes).context(program.display())?)?;
    let emulator = Emulator::new()?;
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for &kernel in kernels {
        let is_it = |f: &&Function| f.name.split(" = ").any(|name| name.contains(kernel.function));
        match functions.iter().find(is_it) {
            Some(function) => found.push((kernel, function)),
            None => faults.push(format!(
                "{}: no function '{}' (see xtask/src/mca/goals.rs)",
                kernel.label, kernel.function
            )),
        }
    }
    let mut sources: Vec<Source> = Vec::new();
    found.iter().map(|(k, _)| k.source).for_each(|s| {
        if !sources.contains(&s) {
            sources.push(s);
        }
    });
    let mut analysed = Vec::new();
    for source in sources {
        let here: Vec<_> = found.iter().filter(|(k, _)| k.source == source).collect();
        // Two loops can lie in one function.
        let mut places: Vec<&Function> = Vec::new();
        here.iter().map(|(_, f)| *f).for_each(|f| {
            if !places.iter().any(|p| p.addresses == f.addresses) {
                places.push(f);
            }
        });
        let ranges = places.iter().map(|f| format!("trace={:x}-{:x}", f.addresses.start, f.addresses.end));
        let text = emulator.run(CPU, program, &run_args(source)?, "mca", &ranges.collect::<Vec<_>>())?;
        let traces = slices::parse(&text, places.len()).context("trace")?;
        for (kernel, function) in here {
            let Some(i) = places.iter().position(|p| p.addresses == function.addresses) else { continue };
            match analyse_one(program, kernel, function, &traces[i], print_code)? {
                Some(one) => analysed.push(one),
                None => faults.push(format!("{}: its loop never ran", kernel.label)),
            }
        }
    }
    analysed.sort_by_key(|a| KERNELS.iter().position(|k| k.label == a.kernel.label));
    Ok((analysed, faults))
}

/// Command line of `kinglet` that runs all kernels of a source.
fn run_args(source: Source) -> Outcome<Vec<String>> {
    let (path, numbers) = match source {
        Source::Fixture(name) => {
            let folder = sh::target_dir()?.join("icount");
            (aarch64::unpacked(name, &folder)?, format!("--pp {} --tg 3", goals::TOKENS))
        }
        // Every kernel of a token runs in the first one.
        Source::Real(ty) => (requantized::ensure(ty)?, "--pp 0 --tg 1".to_owned()),
    };
    let rest = format!("{numbers} --reps 1 --threads 1 --ctx 128 --force --quiet");
    let mut args = vec!["bench".to_owned(), "--model".to_owned(), path.display().to_string()];
    args.extend(rest.split(' ').map(str::to_owned));
    Ok(args)
}

/// `None` if the loop is not in the trace.
fn analyse_one(
    program: &Path,
    kernel: &'static Kernel,
    function: &Function,
    trace: &[u64],
    print_code: bool,
) -> Outcome<Option<Analysed>> {
    let code = Disassembly::of(program, &function.addresses)?;
    let dots = |addresses: &[u64]| {
        addresses.iter().filter(|a| code.at(**a).is_some_and(|i| i.is_dot())).count() as u64
    };
    let is_it = |addresses: &[u64]| kernel.dots.contains(&dots(addresses));
    let slice = match kernel.cut {
        Cut::Turn => code.loop_of_dots().and_then(|around| slices::turn(trace, around, &is_it)),
        Cut::Call => slices::call(trace, &function.addresses, &is_it),
    };
    let Some(slice) = slice else { return Ok(None) };
    let instructions: Vec<_> = slice.addresses.iter().filter_map(|a| code.at(*a)).collect();
    let dots = dots(&slice.addresses);
    let text: String = instructions.iter().map(|i| format!("{} {}\n", i.mnemonic, i.operands)).collect();
    if print_code {
        println!("// {}: {}\n{text}", kernel.label, function.name);
    }
    let on = |core| analyser::cycles(core, &text).map_err(|f| Failure::new(format!("{}: {f}", kernel.label)));
    Ok(Some(Analysed { kernel, dots, cycles: [on(Core::A76)?, on(Core::A55)?], slice }))
}

fn table(analysed: &[Analysed]) -> String {
    let mut text = format!(
        "{:<26} {:>6} {:>6} {:>8} {:>8} {:>8} {:>8} {:<13} {:<14} {:>9}\n",
        "loop", "instr", "dots", "A76 cyc", "A55 cyc", "A76", "A55", "", "goal (A76)", "alike"
    );
    for a in analysed {
        let [a76, a55] = a.figures();
        let goal = match a.kernel.goal {
            None => "-".to_owned(),
            Some(goal) if missed(a).is_none() => format!("{goal} reached"),
            Some(goal) => format!("{goal} MISSED"),
        };
        let [alike, all] = a.slice.alike;
        text.push_str(&format!(
            "{:<26} {:>6} {:>6} {:>8.1} {:>8.1} {a76:>8.3} {a55:>8.3} {:<13} {goal:<14} {:>9}\n",
            a.kernel.label,
            a.slice.addresses.len(),
            a.dots,
            a.cycles[0],
            a.cycles[1],
            a.unit(),
            format!("{alike}/{all}"),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn analysed(label: &str, dots: u64, cycles: f64) -> Analysed {
        let kernel = KERNELS.iter().find(|k| k.label == label).unwrap();
        let slice = Slice { addresses: vec![4, 8], alike: [7, 9] };
        Analysed { kernel, slice, dots, cycles: [cycles, 4.0 * cycles] }
    }

    #[test]
    fn a_missed_goal_is_said() {
        // 2048 multiply-adds.
        assert_eq!(missed(&analysed(labels::GEMM_32, 128, 2048.0 / 18.5)), None);
        let said = missed(&analysed(labels::GEMM_32, 128, 2048.0 / 17.5)).unwrap();
        assert!(said.contains("17.50 MAC/cycle, the goal is 18"), "{said}");
        // 144 bytes.
        assert_eq!(missed(&analysed(labels::GEMV_Q4_0, 18, 144.0 * 0.41)), None);
        assert!(missed(&analysed(labels::GEMV_Q4_0, 18, 144.0 * 0.43)).is_some());
        assert_eq!(missed(&analysed(labels::GEMM_32_FINE, 256, 1e6)), None);
        let text = table(&[analysed(labels::GEMM_32, 128, 128.0)]);
        assert!(text.contains(" 16.000    4.000 MAC/cycle     18 MISSED") && text.contains("7/9"), "{text}");
    }

    #[test]
    fn attention_is_judged_as_a_whole() {
        // 1024 multiply-adds of two planes and of one.
        let both = |a, b| [analysed(labels::SCORES, 128, a), analysed(labels::VALUES, 64, b)];
        assert_eq!(attention(&both(1024.0 / 14.0, 1024.0 / 24.0)), None);
        assert!(attention(&both(1024.0 / 12.0, 1024.0 / 20.0)).is_some());
    }
}
