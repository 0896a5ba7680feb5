//! `cargo xtask page-test`: the page in headless Chromium, scene by scene, each from a fresh start.
//!
//! Without `--server` the page and a stand-in API come from here, so that failures, hostile replies and torn
//! streams can be had. Must not know what the scenes look for.

use super::browser::Browser;
use super::fake::Fake;
use super::scenes::SCENES;
use super::{Page, check};
use crate::sh::{Context, Failure, Outcome};
use core::time::Duration;
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

const HELP: &str = "\
Usage: cargo xtask page-test [OPTIONS]

Drives the server's page in headless Chromium, with a stand-in for the server.

  --server URL  a running kinglet instead; leaves out what only the stand-in can do
  --only SCENE  this scene alone
  --shots DIR   write pictures there
";

/// A scene and what it may do.
pub struct Scene {
    /// One word.
    pub name: &'static str,
    /// Whether a real server will do.
    pub any_server: bool,
    /// Parts of complaints on the console that belong to it.
    pub allowed: &'static [&'static str],
    /// Plays it.
    pub play: fn(&Stage) -> Outcome,
}

/// What a scene has at hand.
pub struct Stage {
    /// The browser, on the page.
    pub browser: Browser,
    /// The page's address.
    pub address: String,
    /// The policy that the page must come with.
    pub policy: String,
    fake: Option<Fake>,
    shots: Option<PathBuf>,
}

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::Arg::Long;
    use lexopt::ValueExt;
    let mut args = lexopt::Parser::from_args(words);
    let (mut server, mut only, mut shots) = (None, None, None);
    while let Some(arg) = args.next()? {
        match arg {
            Long("server") => server = Some(args.value()?.string()?),
            Long("only") => only = Some(args.value()?.string()?),
            Long("shots") => shots = Some(PathBuf::from(args.value()?)),
            Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    if let Some(name) = only.as_ref().filter(|n| !SCENES.iter().any(|s| s.name == **n)) {
        let names: Vec<&str> = SCENES.iter().map(|s| s.name).collect();
        return Err(Failure::usage(format!("no scene '{name}', but {}", names.join(", "))));
    }
    if let Some(folder) = &shots {
        fs::create_dir_all(folder).context(format_args!("cannot make {}", folder.display()))?;
    }
    // What is played is what is committed.
    check()?;
    let page = Page::read()?;
    let policy = page.policy.join("; ");
    let fake = match server {
        None => Some(Fake::start(page.compressed()?, policy.clone())?),
        Some(_) => None,
    };
    let address = fake.as_ref().map(|fake| fake.address.clone()).or(server).unwrap_or_default();
    let stage = Stage { browser: Browser::start()?, address, policy, fake, shots };
    let wanted = |scene: &&Scene| {
        only.as_ref().is_none_or(|name| name == scene.name) && (scene.any_server || stage.fake.is_some())
    };
    let mut played = 0;
    for scene in SCENES.iter().filter(wanted) {
        stage.play(scene).map_err(|f| Failure::new(format!("page-test, scene '{}': {f}", scene.name)))?;
        eprintln!("page-test: {} is well", scene.name);
        played += 1;
    }
    eprintln!("page-test: {played} scenes");
    Ok(())
}

impl Stage {
    fn play(&self, scene: &Scene) -> Outcome {
        self.browser.go(&self.address)?;
        self.browser.run("localStorage.clear(); sessionStorage.clear()")?;
        if !self.is_fake() {
            // A model's replies are the same in every run then.
            self.browser.run("localStorage['kinglet.settings'] = '{\"temperature\":0}'")?;
        }
        self.browser.go("about:blank")?;
        self.browser.complaints()?;
        self.browser.go(&self.address)?;
        self.wait("the page to begin", "document.querySelector('#log .empty') && $('model').textContent")?;
        let outcome = (scene.play)(self);
        if outcome.is_err() {
            self.shot(&format!("failed-{}", scene.name))?;
        }
        let complaints = self.browser.complaints()?;
        let is_new = |text: &&String| !scene.allowed.iter().any(|part| text.contains(part));
        let complaint = complaints.iter().find(is_new);
        outcome.map_err(|mut failure| {
            if let Some(text) = complaint {
                failure.message.push_str(&format!("; the console says: {text}"));
            }
            failure
        })?;
        match complaint {
            None => Ok(()),
            Some(text) => Err(Failure::new(format!("the console says: {text}"))),
        }
    }

    /// The stand-in, for scenes that need it.
    ///
    /// # Errors
    /// A real server plays.
    pub fn fake(&self) -> Outcome<&Fake> {
        self.fake.as_ref().ok_or(Failure::new("this scene needs the stand-in"))
    }

    /// Whether the stand-in plays.
    pub fn is_fake(&self) -> bool {
        self.fake.is_some()
    }

    /// Waits until an expression is true; real models take their time.
    pub fn wait(&self, what: &str, expression: &str) -> Outcome {
        self.browser.wait(what, expression, Duration::from_secs(if self.is_fake() { 15 } else { 180 }))
    }

    /// Whether an expression is true now.
    pub fn demand(&self, what: &str, expression: &str) -> Outcome {
        match self.browser.run(&format!("return !!({expression})"))? {
            Value::Bool(true) => Ok(()),
            _ => Err(Failure::new(format!("not so: {what}"))),
        }
    }

    /// The value of an expression, as text.
    pub fn text(&self, expression: &str) -> Outcome<String> {
        let value = self.browser.run(&format!("return {expression}"))?;
        Ok(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// Types a question and sends it.
    pub fn say(&self, text: &str) -> Outcome {
        self.browser.type_into("#input", &format!("{text}{}", super::scenes::ENTER))
    }

    /// Asks, and waits for the end of the reply.
    pub fn ask(&self, text: &str) -> Outcome {
        self.say(text)?;
        self.ended()
    }

    /// Waits until no reply is being written.
    pub fn ended(&self) -> Outcome {
        self.wait("the end of the reply", "$('stop').hidden")
    }

    /// A picture, if any are wanted.
    pub fn shot(&self, name: &str) -> Outcome {
        match &self.shots {
            Some(folder) => self.browser.picture(&folder.join(format!("{name}.png"))),
            None => Ok(()),
        }
    }
}
