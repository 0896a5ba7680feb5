//! The command line: finds the command, prints help, turns failures into exit codes. Must not know
//! what the commands do.

use crate::failure::{EXIT_FAILURE, EXIT_USAGE, Failure};
use crate::signal;
use crate::term;
use crate::trace;
use crate::words::{Help, Words, nearest};
use crate::{
    cmd_bench, cmd_chat, cmd_convert, cmd_generate, cmd_inspect, cmd_lines, cmd_logits, cmd_perplexity,
    cmd_run, cmd_serve, cmd_verify, kv_cmd,
};
use core::fmt::Write as _;
use lexopt::Parser;
use std::process::ExitCode;

/// A command.
struct Command {
    name: &'static str,
    summary: &'static str,
    help: Help,
    run: fn(&mut Words) -> Result<(), Failure>,
}

const COMMANDS: &[Command] = &[
    Command { name: "run", summary: "answer one prompt", help: cmd_run::HELP, run: cmd_run::command },
    Command { name: "chat", summary: "talk, turn by turn", help: cmd_chat::HELP, run: cmd_chat::command },
    Command {
        name: "serve",
        summary: "answer over HTTP, as OpenAI's API does",
        help: cmd_serve::HELP,
        run: cmd_serve::command,
    },
    Command { name: "bench", summary: "measure speed", help: cmd_bench::HELP, run: cmd_bench::command },
    Command {
        name: "inspect",
        summary: "show what is in a model file, and the memory it needs",
        help: cmd_inspect::HELP,
        run: cmd_inspect::command,
    },
    Command {
        name: "perplexity",
        summary: "measure how well a model predicts a text",
        help: cmd_perplexity::HELP,
        run: cmd_perplexity::command,
    },
    Command {
        name: "verify",
        summary: "check that this machine gives the one right answer",
        help: cmd_verify::HELP,
        run: cmd_verify::command,
    },
    Command {
        name: "convert",
        summary: "write a model file with weights of another type",
        help: cmd_convert::HELP,
        run: cmd_convert::command,
    },
    Command {
        name: "kv",
        summary: "list, check, remove, copy KV caches",
        help: kv_cmd::HELP,
        run: kv_cmd::command,
    },
    Command {
        name: "logits",
        summary: "logits of token ids, as numbers or as one hash",
        help: cmd_logits::HELP,
        run: cmd_logits::command,
    },
    Command {
        name: "generate",
        summary: "continue token ids greedily",
        help: cmd_generate::HELP,
        run: cmd_generate::command,
    },
    Command {
        name: "tokenize",
        summary: "JSON lines: texts to token ids",
        help: cmd_lines::TOKENIZE_HELP,
        run: cmd_lines::tokenize,
    },
    Command {
        name: "detokenize",
        summary: "JSON lines: token ids to texts",
        help: cmd_lines::DETOKENIZE_HELP,
        run: cmd_lines::detokenize,
    },
    Command {
        name: "template",
        summary: "JSON lines: chats to prompts",
        help: cmd_lines::TEMPLATE_HELP,
        run: cmd_lines::template,
    },
];

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    signal::install_last_words();
    let outcome = dispatch(Parser::from_env());
    if let Some(failure) = trace::finish() {
        term::complain(&failure);
    }
    let (failure, code) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        // Whoever closed the pipe has what they wanted.
        Err(Failure::PipeClosed) => return ExitCode::SUCCESS,
        Err(Failure::Interrupted) => return ExitCode::from(signal::exit_code()),
        Err(Failure::Help(text)) => match term::print(&text.concat()) {
            Ok(()) | Err(Failure::PipeClosed) => return ExitCode::SUCCESS,
            Err(failure) => (failure, EXIT_FAILURE),
        },
        Err(failure @ Failure::Usage(_)) => (failure, EXIT_USAGE),
        Err(failure @ Failure::Failed(_)) => (failure, EXIT_FAILURE),
    };
    term::complain(&failure);
    ExitCode::from(code)
}

fn dispatch(mut parser: Parser) -> Result<(), Failure> {
    let word = match parser.next()? {
        None => return Err(Failure::Usage(String::from("a command is missing; 'kinglet help' lists them"))),
        Some(lexopt::Arg::Long("help") | lexopt::Arg::Short('h')) => return help(parser),
        Some(lexopt::Arg::Long("version") | lexopt::Arg::Short('V')) => {
            let numerics = kinglet_core::NUMERICS_VERSION;
            return term::print(&format!("kinglet {} (numerics {numerics})\n", env!("CARGO_PKG_VERSION")));
        }
        Some(lexopt::Arg::Value(word)) => word.to_string_lossy().into_owned(),
        Some(other) => {
            let flag = match other {
                lexopt::Arg::Short(c) => format!("-{c}"),
                lexopt::Arg::Long(name) => format!("--{name}"),
                lexopt::Arg::Value(_) => String::new(),
            };
            let flag = flag.escape_debug();
            return Err(Failure::Usage(format!("flag '{flag}' stands before the command; write it after")));
        }
    };
    if word == "help" {
        return help(parser);
    }
    let command = find(&word)?;
    (command.run)(&mut Words::new(parser, command.name, command.help))
}

/// `help` alone or with the name of a command.
fn help(mut parser: Parser) -> Result<(), Failure> {
    match parser.next()? {
        Some(lexopt::Arg::Value(word)) if word != "help" => {
            Err(Failure::Help(find(&word.to_string_lossy())?.help))
        }
        _ => term::print(&overview()),
    }
}

fn find(word: &str) -> Result<&'static Command, Failure> {
    COMMANDS.iter().find(|c| c.name == word).ok_or_else(|| {
        let hint = match nearest(word, COMMANDS.iter().map(|c| c.name).chain(["help"])) {
            Some(near) => format!("did you mean {near}?"),
            None => String::from("'kinglet help' lists the commands"),
        };
        Failure::Usage(format!("unknown command '{}'; {hint}", word.escape_debug()))
    })
}

fn overview() -> String {
    let mut text = String::from(
        "kinglet runs Qwen language models from GGUF files.\n\n\
         usage: kinglet COMMAND [FLAGS]\n\n\
         \x20 kinglet run -m model.gguf -p \"Why is the sky blue?\"\n\
         \x20 kinglet chat -m model.gguf\n\nCommands:\n",
    );
    for command in COMMANDS {
        let _ = writeln!(text, "  {:<11} {}", command.name, command.summary);
    }
    text.push_str(
        "  help        'kinglet help COMMAND' explains a command and its flags\n\n\
         Replies go to standard output, everything else to standard error.\n\
         Exit codes: 0 success, 1 failure, 2 wrong command line, 130 Ctrl-C, 143 SIGTERM.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{Word, flags};

    fn message(args: &[&str]) -> String {
        format!("{:?}", dispatch(Parser::from_args(args)).unwrap_err())
    }

    #[test]
    fn wrong_words_get_a_hint() {
        assert!(message(&["rnu"]).contains("did you mean run?"));
        assert!(message(&["frobnicate"]).contains("'kinglet help' lists"));
        assert!(message(&["run", "--modle", "x"]).contains("did you mean --model?"));
        assert!(message(&["-m", "x", "run"]).contains("stands before the command"));
        assert!(message(&["help", "benhc"]).contains("did you mean bench?"));
        assert!(message(&["chat", "hello"]).contains("unexpected 'hello'"));
    }

    #[test]
    fn every_flag_that_a_help_text_names_is_known() {
        for command in COMMANDS {
            for flag in flags(command.help).filter(|f| *f != "--help") {
                let parser = Parser::from_args([flag, "--no-such-flag"]);
                let mut words = Words::new(parser, command.name, command.help);
                let failure = format!("{:?}", (command.run)(&mut words).unwrap_err());
                let unknown = format!("unknown flag '{flag}'");
                assert!(!failure.contains(&unknown), "{} {flag}: {failure}", command.name);
            }
        }
    }

    #[test]
    fn help_is_found_everywhere() {
        for command in COMMANDS {
            for args in [["help", command.name], [command.name, "--help"], [command.name, "-h"]] {
                assert_eq!(dispatch(Parser::from_args(args)), Err(Failure::Help(command.help)));
            }
            assert!(command.help[0].starts_with(&format!("usage: kinglet {}", command.name)));
        }
        assert_eq!(dispatch(Parser::from_args(["help", "help"])), Ok(()));
        let mut words = Words::new(Parser::from_args(["x"]), "run", &[]);
        assert_eq!(words.advance(), Ok(Some(Word::Value("x".into()))));
    }
}
