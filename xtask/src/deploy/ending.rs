//! How a deploy ends: with a report of what is there now, or with the version before brought back. Must not
//! know how files got there.

use super::layout::Layout;
use super::{Deploy, Payload, Said, health, script, unit};
use crate::sh::{Failure, Outcome};

impl Deploy<'_> {
    pub(super) fn roll_back_words<'a>(&self, layout: &'a Layout, files: &'a [String]) -> Vec<&'a str> {
        let unit = if self.options.unit { [unit::NAME, &layout.unit] } else { ["", ""] };
        unit.into_iter().chain(files.iter().map(String::as_str)).collect()
    }

    /// Brings the version before back; the failure to leave with, which says how that went.
    pub(super) fn roll_back(
        &self,
        layout: &Layout,
        files: &[String],
        had_service: bool,
        cause: &Failure,
    ) -> Failure {
        eprintln!("deploy: {cause}\ndeploy: ROLLING BACK");
        let said = match self.remote.run(&script::ROLL_BACK, &self.roll_back_words(layout, files)) {
            Ok(said) => said.unwrap_or_default(),
            Err(failure) => {
                let host = &self.options.destination;
                return Failure::new(format!(
                    "{cause}\nand the version before COULD NOT BE BROUGHT BACK: {failure}\n\
                     On {host} each file's old version lies beside it as FILE.previous: {}",
                    files.join(", ")
                ));
            }
        };
        if !said.lines().any(|line| line.strip_prefix("back ") == Some(&layout.binary)) {
            return Failure::new(format!(
                "{cause}\nrolled back: there was no version before, so none is left"
            ));
        }
        // The model before is not known here: the version is all that can be asked.
        let checks = health::checks(layout, &self.options.runner, "kinglet ", None);
        let is_well = health::check(&self.remote, &checks).and_then(|said| {
            let service = if self.options.unit && had_service { self.ask(layout)? } else { None };
            let service = service.map_or(String::new(), |said| format!(", and answers at {said}"));
            Ok(format!("{} is in place again and runs{service}", said.join(" ")))
        });
        Failure::new(match is_well {
            Ok(said) => format!("{cause}\nrolled back: {said}"),
            Err(failure) => {
                format!(
                    "{cause}\nrolled back: the version before is in place, but does not run either: {failure}"
                )
            }
        })
    }

    /// Says on standard output what is there now.
    pub(super) fn report(&self, layout: &Layout, binary: &Payload, said: &Said) -> Outcome {
        let o = self.options;
        println!("{} is in place on {}", said.checks[0], o.destination);
        println!("  binary  {} ({} bytes, SHA-256 {})", layout.binary, binary.bytes, binary.sha256);
        if let (Some(model), Some(hash)) = (&layout.model, said.checks.get(1)) {
            println!("  model   {model}\n  logits  {hash}, the same as here");
        }
        if o.unit
            && let Some(status) = self.remote.run(&script::STATUS, &[unit::NAME])?
        {
            if let Some(service) = &said.service {
                println!("  service {service}\n  flags   {}", layout.conf);
            }
            println!("  unit    {} {}", unit::NAME, status.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        Ok(())
    }
}
