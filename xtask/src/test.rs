//! `cargo xtask test`: everything CI runs, in order, with a table of durations.

use crate::cross::{self, Log, Target};
use crate::sh::{self, Context, Failure, Outcome};
use crate::{aarch64, bare, clients, deploy, logs, model, page, setup, size, tidy};
use core::time::Duration;
use std::ffi::OsString;
use std::process::{Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Instant;

const HELP: &str = "\
Usage: cargo xtask test [OPTIONS]

Options:
  --list        name the steps and what they do
  --only STEP   run this step alone (may be given several times)
  --keep-going  go on after a failed step; the result is a failure all the same
  --no-model    work offline: leave the tests out that need the real model
";

/// What the user asked for.
#[derive(Debug, Default)]
struct Options {
    only: Vec<String>,
    keep_going: bool,
    no_model: bool,
    list: bool,
}

/// A step of the run.
struct Step {
    name: &'static str,
    help: &'static str,
    /// Whether it runs in a process of its own while the next step does: it leaves a core idle.
    beside: bool,
    run: fn(&Options) -> Outcome,
}

/// A step in a process of its own: what it said, and how long it took.
type Beside = JoinHandle<(Outcome, String, Duration)>;

/// A step with the machine to itself.
const fn step(name: &'static str, help: &'static str, run: fn(&Options) -> Outcome) -> Step {
    Step { name, help, beside: false, run }
}

/// A step beside the next one.
const fn first_of_two(name: &'static str, help: &'static str, run: fn(&Options) -> Outcome) -> Step {
    Step { name, help, beside: true, run }
}

/// Cheap steps first, so that a slip is reported in seconds.
const STEPS: &[Step] = &[
    step("setup", "install what is missing, so that this command is all it takes", install),
    step("tidy", "the house rules", |_| tidy::check()),
    step("page", "the packed page is that of page.html, and small", |_| page::check()),
    step("fmt", "formatting", fmt),
    step("clippy", "lints, warnings are errors", clippy),
    step("bare", "kinglet-core for a target without std and alloc", |_| bare::check()),
    step("model", "fetch and verify the real model", |_| model::ensure().map(|_| ())),
    step("test", "all tests, those on the real model too", tests),
    step("doc", "documentation, warnings are errors", doc),
    first_of_two("binary", "release build and a first sign of life", binary),
    step("cross", "the static binary for the boards", |_| cross().map(|_| ())),
    step("size", "its bytes against the budget", |_| size::check(&cross()?, 0)),
    step("page-test", "the page in a headless browser, with a stand-in for the server", |_| {
        page::test(Vec::new())
    }),
    step(
        "clients",
        "the official Python clients, the page and README's curl examples, with the real model",
        |options| clients::check(options.no_model),
    ),
    step(
        "bare-run",
        "kinglet-core on an emulated machine without an operating system, against the host",
        |_| bare::run(),
    ),
    step("aarch64", "that binary and the core's tests on emulated boards", |options| {
        aarch64::check(options.no_model)
    }),
    first_of_two("logs", "that binary's log, written there and read here", |_| logs::check()),
    step("deploy", "that binary put on an emulated board through a real ssh server, and taken back", |_| {
        deploy::check::check()
    }),
];

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::Arg::Long;
    use lexopt::ValueExt;
    let mut args = lexopt::Parser::from_args(words);
    let mut options = Options::default();
    while let Some(arg) = args.next()? {
        match arg {
            Long("only") => options.only.push(args.value()?.string()?),
            Long("keep-going") => options.keep_going = true,
            Long("no-model") => options.no_model = true,
            Long("list") => options.list = true,
            Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    if options.list {
        STEPS.iter().for_each(|step| println!("{:<8} {}", step.name, step.help));
        return Ok(());
    }
    run_steps(STEPS, &options)
}

/// Runs what `options` select and prints the table.
fn run_steps(steps: &[Step], options: &Options) -> Outcome {
    if let Some(name) = options.only.iter().find(|n| !steps.iter().any(|s| s.name == **n)) {
        return Err(Failure::usage(format!("no step '{name}'; `cargo xtask test --list` names them")));
    }
    let wanted = |s: &&Step| options.only.is_empty() || options.only.iter().any(|n| n == s.name);
    let selected: Vec<&Step> =
        steps.iter().filter(wanted).filter(|s| !(options.no_model && s.name == "model")).collect();
    warn_without_model(options);

    let begin = Instant::now();
    let mut table = Vec::new();
    let mut first_failure = None;
    let mut ended = |name: &'static str, outcome: Outcome, time: Duration| {
        table.push((name, outcome.is_ok(), time));
        if let Err(failure) = outcome {
            eprintln!("== {name} FAILED: {failure}");
            first_failure.get_or_insert((name, failure));
        }
        first_failure.is_none()
    };
    let mut others: Vec<(&str, Beside)> = Vec::new();
    for (i, step) in selected.iter().enumerate() {
        let number = format!("{}/{}", i + 1, selected.len());
        if step.beside && i + 1 < selected.len() {
            eprintln!("\n== {} ({number}) begins; it is reported after the next step", step.name);
            others.push((step.name, beside(step.name, options)));
            continue;
        }
        eprintln!("\n== {} ({number}): {}", step.name, step.help);
        let start = Instant::now();
        let outcome = (step.run)(options);
        let mut good = ended(step.name, outcome, start.elapsed());
        for (name, other) in others.drain(..) {
            let (outcome, said, time) = other.join().map_err(|_| Failure::new("a thread panicked"))?;
            eprintln!("\n== {name}, meanwhile:\n{}", said.trim());
            good &= ended(name, outcome, time);
        }
        if !good && !options.keep_going {
            break;
        }
    }
    print_table(&selected, &table, begin.elapsed());
    warn_without_model(options);
    match first_failure {
        None => Ok(()),
        Some((name, failure)) => {
            let message = format!("step '{name}' failed: {failure}");
            Err(Failure { message, code: failure.code })
        }
    }
}

/// Runs a step in a process of its own.
fn beside(name: &'static str, options: &Options) -> Beside {
    let no_model = options.no_model;
    thread::spawn(move || {
        let start = Instant::now();
        let run = || -> Outcome<Output> {
            let mut command = Command::new(std::env::current_exe().context("this program's file")?);
            command.args(["test", "--only", name]).args(no_model.then_some("--no-model"));
            command.stdin(Stdio::null()).output().context(sh::shown(&command))
        };
        let (outcome, said) = match run() {
            Ok(output) => {
                let said = [output.stdout, output.stderr].map(|s| String::from_utf8_lossy(&s).into_owned());
                (sh::check(output.status, name), said.concat())
            }
            Err(failure) => (Err(failure), String::new()),
        };
        (outcome, said, start.elapsed())
    })
}

fn print_table(selected: &[&Step], table: &[(&str, bool, Duration)], total: Duration) {
    eprintln!();
    for step in selected {
        match table.iter().find(|row| row.0 == step.name) {
            Some((name, true, time)) => eprintln!("  {name:<8} ok      {:>7.1} s", time.as_secs_f64()),
            Some((name, false, time)) => eprintln!("  {name:<8} FAILED  {:>7.1} s", time.as_secs_f64()),
            None => eprintln!("  {:<8} not run", step.name),
        }
    }
    eprintln!("  {:<8}         {:>7.1} s", "total", total.as_secs_f64());
}

fn warn_without_model(options: &Options) {
    if options.no_model {
        eprintln!(
            "\n*** --no-model: THE TESTS ON THE REAL MODEL ARE LEFT OUT. This is not what CI runs. ***"
        );
    }
}

/// Offline nothing can be fetched: the steps themselves say what they lack.
fn install(options: &Options) -> Outcome {
    if options.no_model {
        eprintln!("--no-model: nothing is installed");
        return Ok(());
    }
    setup::main(Vec::new())
}

fn fmt(_: &Options) -> Outcome {
    sh::run(sh::cargo().args(["fmt", "--all", "--check"]))?;
    // No members of the workspace.
    for manifest in ["tests/bare/Cargo.toml", "xtask/logs/Cargo.toml"] {
        sh::run(sh::cargo().args(["fmt", "--manifest-path", manifest, "--check"]))?;
    }
    Ok(())
}

fn clippy(_: &Options) -> Outcome {
    sh::run(sh::cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn tests(options: &Options) -> Outcome {
    let mut command = sh::cargo();
    command.args(["test", "--workspace"]);
    if options.no_model {
        // Also when the caller's environment has it: the warning says they are left out.
        command.env_remove(model::MODEL_ENV).env("KINGLET_NO_MODEL", "1");
    } else {
        command.env(model::MODEL_ENV, model::ensure()?);
    }
    sh::run(&mut command)
}

fn cross() -> Outcome<cross::Built> {
    cross::build(Target::Aarch64, None, Log::Frames)
}

fn doc(_: &Options) -> Outcome {
    sh::run(sh::cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

fn binary(_: &Options) -> Outcome {
    sh::run(sh::cargo().args(["build", "--release", "--package", "kinglet"]))?;
    let binary = sh::target_dir()?.join("release").join("kinglet");
    eprintln!("$ kinglet --version");
    let output = Command::new(&binary).arg("--version").output();
    let output = output.map_err(|e| Failure::new(format!("cannot start {}: {e}", binary.display())))?;
    sh::check(output.status, "kinglet --version")?;
    let said = String::from_utf8_lossy(&output.stdout);
    eprint!("{said}");
    let version = env!("CARGO_PKG_VERSION");
    if said.starts_with("kinglet") && said.contains(version) {
        return Ok(());
    }
    Err(Failure::new(format!("`kinglet --version` does not say kinglet {version}, but {:?}", said.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Step = step("good", "", |_| Ok(()));
    const BAD: Step = step("bad", "", |_| Err(Failure { message: "no".into(), code: 42 }));
    const DIES: Step = step("dies", "", |_| panic!("must not be reached"));

    #[test]
    fn the_first_failure_stops_the_run_and_gives_the_code() {
        let failure = run_steps(&[GOOD, BAD, DIES], &Options::default()).unwrap_err();
        assert_eq!(failure.code, 42);
        assert!(failure.message.contains("'bad'"), "{failure}");
    }

    #[test]
    fn keep_going_goes_on_and_still_fails() {
        let worse = step("worse", "", |_| Err(Failure::new("later")));
        let options = Options { keep_going: true, ..Options::default() };
        assert_eq!(run_steps(&[BAD, worse, GOOD], &options).unwrap_err().code, 42);
    }

    #[test]
    fn only_selects_and_knows_its_steps() {
        let only = |name: &str| Options { only: vec![name.into()], ..Options::default() };
        assert!(run_steps(&[GOOD, DIES], &only("good")).is_ok());
        assert_eq!(run_steps(&[GOOD], &only("nope")).unwrap_err().code, 2);
    }

    #[test]
    fn no_model_leaves_the_fetching_out() {
        let fetch = step("model", "", |_| panic!("must not be reached"));
        assert!(run_steps(&[fetch], &Options { no_model: true, ..Options::default() }).is_ok());
    }
}
