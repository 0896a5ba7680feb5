//! The tasks of the project: `cargo xtask help` lists them.
//!
//! One file per task. This crate starts other programs and reads text; it must not know
//! the engine's types, so that it builds in seconds and cannot be broken by the engine.

mod aarch64;
mod bare;
mod clients;
mod count;
mod cross;
mod demo;
mod deploy;
mod elf;
mod emulator;
mod fuzz;
mod life;
mod logs;
mod mca;
mod miri;
mod model;
mod page;
mod pair;
mod requantized;
mod setup;
mod sh;
mod size;
mod symbols;
mod test;
mod tidy;

use sh::{Failure, Outcome};
use std::ffi::OsString;
use std::process::ExitCode;

/// A task: its name, one line of help, and what to run with the words that follow the name.
struct Task {
    name: &'static str,
    help: &'static str,
    run: fn(Vec<OsString>) -> Outcome,
}

/// All tasks, in the order of `cargo xtask help`.
const TASKS: &[Task] = &[
    Task {
        name: "demo",
        help: "fetch a real model, ask it three questions, and let a conversation outlive kill -9",
        run: demo::main,
    },
    Task { name: "test", help: "everything CI runs; see `cargo xtask test --help`", run: test::main },
    Task {
        name: "model",
        help: "fetch and verify the real model; --type converts it, --path prints its place",
        run: model::main,
    },
    Task { name: "setup", help: "install what `test` needs; --dry-run only says what", run: setup::main },
    Task {
        name: "cross",
        help: "build the static binary for the boards; --target, --route",
        run: cross::main,
    },
    Task { name: "size", help: "where the bytes of that binary go; fails above the budget", run: size::main },
    Task {
        name: "deploy",
        help: "put the binary, a model and a systemd unit on a board over ssh, with a way back",
        run: deploy::main,
    },
    Task {
        name: "count",
        help: "instructions per token under emulation, beside llama.cpp's; --type, --deep, --json",
        run: count::main,
    },
    Task {
        name: "mca",
        help: "cycles of the inner loops by llvm-mca, against their goals, and tokens/s modelled from them",
        run: mca::main,
    },
    Task {
        name: "pair",
        help: "speed by the clock, ours and llama.cpp's in turn; --python PATH",
        run: pair::main,
    },
    Task {
        name: "page",
        help: "pack the server's page; --check fails when the packed one is stale",
        run: page::main,
    },
    Task {
        name: "page-test",
        help: "drive that page in headless Chromium; --server URL, --shots DIR",
        run: page::test,
    },
    Task {
        name: "clients",
        help: "the official Python clients and README's curl examples against the built server",
        run: clients::main,
    },
    Task {
        name: "logs",
        help: "print what `kinglet --trace FILE` wrote: logs FILE [--elf ELF]",
        run: logs::main,
    },
    Task { name: "tidy", help: "check the house rules", run: tidy::main },
    Task {
        name: "miri",
        help: "interpret the small kernel tests as a CPU with AVX-512 would run them",
        run: miri::main,
    },
    Task { name: "fuzz", help: "run fuzz targets: fuzz [TARGET] [--seconds N]", run: fuzz::main },
];

fn main() -> ExitCode {
    match dispatch(std::env::args_os().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(mut words: Vec<OsString>) -> Outcome {
    if words.is_empty() {
        return Err(Failure::usage(format!("no task given\n{}", help())));
    }
    let name = words.remove(0).to_string_lossy().into_owned();
    if matches!(name.as_str(), "help" | "-h" | "--help") {
        print!("{}", help());
        return Ok(());
    }
    match TASKS.iter().find(|task| task.name == name) {
        Some(task) => (task.run)(words),
        None => Err(Failure::usage(format!("no task '{name}'; {}", hint(&name)))),
    }
}

fn help() -> String {
    let mut text = String::from("Usage: cargo xtask TASK [OPTIONS]\n\nTasks:\n");
    for task in TASKS {
        text.push_str(&format!("  {:<8} {}\n", task.name, task.help));
    }
    text
}

/// What the user may have meant: the one task that shares a beginning, else the list.
fn hint(name: &str) -> String {
    let shared = |a: &str| a.bytes().zip(name.bytes()).take_while(|(x, y)| x == y).count();
    match TASKS.iter().max_by_key(|task| shared(task.name)) {
        Some(task) if shared(task.name) >= 2 => {
            format!("did you mean '{}'? `cargo xtask help` lists all", task.name)
        }
        _ => "`cargo xtask help` lists all".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_task_is_an_error_with_a_hint() {
        let failure = dispatch(vec!["tests".into()]).unwrap_err();
        assert_eq!(failure.code, 2);
        assert!(failure.to_string().contains("did you mean 'test'?"), "{failure}");
        let failure = dispatch(vec!["zzz".into()]).unwrap_err();
        assert!(failure.to_string().contains("cargo xtask help"), "{failure}");
        assert!(dispatch(vec![]).is_err());
    }

    #[test]
    fn help_names_every_task() {
        assert!(TASKS.iter().all(|task| help().contains(task.name)));
    }
}
