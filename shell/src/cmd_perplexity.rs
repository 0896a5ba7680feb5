//! `perplexity`: how well a model predicts a text. Must not know how logits are computed.

use crate::cmd_logits::LOGIT_ROWS;
use crate::decimal::fixed;
use crate::failure::Failure;
use crate::ids::read_text;
use crate::loader::Model;
use crate::parts;
use crate::session::Session;
use crate::setup::{self, Setup};
use crate::signal;
use crate::term::print;
use crate::vocabulary::Vocabulary;
use crate::words::{Help, Word, Words};
use kinglet_core::sample::LogProbs;

/// Help text.
pub const HELP: Help = &[
    "usage: kinglet perplexity -m FILE --file TEXT [FLAGS]

Tokenizes a text file (no token is put in front) and computes it as one window. Prints the number
of tokens, the mean negative logarithm (natural) of the probability of each token but the first,
and its exponential, the perplexity.

      --file TEXT          the text

",
    setup::FLAGS,
];

/// Runs the command.
///
/// # Errors
/// Of the command line, the files, the engine.
pub fn command(words: &mut Words) -> Result<(), Failure> {
    let mut setup = Setup { logit_rows: LOGIT_ROWS, ..Setup::default() };
    let mut file = None;
    while let Some(word) = words.advance()? {
        let Word::Flag(flag) = &word else { return Err(words.unknown(word)) };
        match flag.as_str() {
            "--file" => file = Some(words.path()?),
            flag if setup.accept(flag, words)? => {}
            _ => return Err(words.unknown(word)),
        }
    }
    let path = words.need(setup.model.clone(), "-m FILE")?;
    let file = words.need(file, "--file TEXT")?;

    let text = read_text(&file)?;
    let model = Model::open_to_compute(&path)?;
    let config = model.config()?;
    let ids = Vocabulary::open(&model)?.encode(&text)?;
    if ids.len() < 2 {
        return Err(Failure::file(&file, format_args!("has {} tokens; 2 are needed", ids.len())));
    }
    let ctx = parts::limits(&setup, &config).max_seq;
    if ids.len() > ctx {
        return Err(Failure::new(format_args!(
            "the text has {} tokens, the context holds {ctx}; use --ctx {} or a shorter text",
            ids.len(),
            ids.len(),
        )));
    }
    let mut session = Session::start(&model, &setup)?;
    signal::install();
    let mut sum = 0.0;
    let mut fault = None;
    session.score(&ids, &mut |at, logits| {
        // The logits of a position are about the token after it.
        let Some(&next) = ids.get(at.position + 1) else { return };
        match LogProbs::new(logits) {
            Ok(probabilities) => sum -= f64::from(probabilities.of(logits[next as usize])),
            Err(e) => fault = Some(e),
        }
    })?;
    if let Some(e) = fault {
        return Err(Failure::new(e));
    }
    let mean = sum / (ids.len() - 1) as f64;
    let (nll, perplexity) = (fixed(mean, 6), fixed(libm::exp(mean), 6));
    print(&format!("tokens {}\nmean_nll {nll}\nperplexity {perplexity}\n", ids.len()))
}
