//! `serve`: the model behind a port. Must not know HTTP, or how replies are made.

use crate::api::served::Served;
use crate::api::{Api, Options};
use crate::cache_flags;
use crate::config_file;
use crate::failure::Failure;
use crate::http::{Bind, Limits, Running, Server};
use crate::loader::Model;
use crate::notify::Notify;
use crate::schedule::{self, MAX_PARALLEL, Scheduler};
use crate::setup::{self, Setup};
use crate::signal;
use crate::term::note;
use crate::vocabulary::{Template, Vocabulary};
use crate::words::{Help, Word, Words};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::path::PathBuf;
use std::sync::Arc;

/// Help text.
pub const HELP: Help = &[
    "usage: kinglet serve -m FILE [FLAGS]

Answers over HTTP as OpenAI's API does (/v1/chat/completions, /v1/completions, /v1/models), as
Anthropic's does (/v1/messages), and as llama.cpp's server does (/tokenize, /detokenize, /apply-template,
/health, /metrics, /props). Where a request is silent, tokens are chosen as by `kinglet run`: temperature
0.8, top_k 40, top_p 0.95, min_p 0.05, no penalties, another seed each time.

Server:
      --host ADDRESS       address to listen at (default 127.0.0.1: this machine only)
      --port N             port (default 8080; 0 takes a free one)
      --unix PATH          listens at a Unix socket instead
      --parallel N         replies computed at once (default 4)
      --queue N            requests that wait beyond those; one more is refused (default 64)
      --idle-trim S        gives memory that no reply needs back after S seconds without one (default
                           600; 0 never)
      --api-key KEY        asks for this key; several may be given. They find nothing of each other in
                           the cache
      --api-key-file FILE  asks for one of the keys in FILE, one in each line
      --admin-key KEY      asks for this key under /admin (default: any API key)
      --cors ORIGIN        lets a page of another site ask; '*' lets all
      --alias NAME         the model's name in replies (default: the name in the file)
      --strict-model       refuses requests for a model of another name
      --log-prompts        writes prompts into the log, too
      --config FILE        reads flags from FILE: a line `port = 8080` is --port 8080
Every flag can also be a variable: KINGLET_PORT=8080. The command line goes before variables, those
go before the file.

",
    cache_flags::FLAGS,
    "\n",
    setup::FLAGS,
];

/// How long replies may take to end once the server is to stop.
const DRAIN: Duration = Duration::from_secs(30);
/// How long connections may take after that.
const GOODBYE: Duration = Duration::from_secs(5);
/// How often signals and systemd's wishes are looked at.
const TICK: Duration = Duration::from_millis(200);

/// What the flags say.
struct Serve {
    setup: Setup,
    host: IpAddr,
    port: u16,
    unix: Option<PathBuf>,
    jobs: schedule::Options,
    api: Options,
    alias: Option<String>,
    config: Option<PathBuf>,
}

impl Serve {
    fn new() -> Serve {
        Serve {
            setup: Setup { several: true, ..Setup::default() },
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 8080,
            unix: None,
            jobs: schedule::Options::default(),
            api: Options::default(),
            alias: None,
            config: None,
        }
    }

    #[inline(never)]
    fn accept(&mut self, words: &mut Words) -> Result<(), Failure> {
        while let Some(word) = words.advance()? {
            let Word::Flag(flag) = &word else { return Err(words.unknown(word)) };
            match flag.as_str() {
                "--host" => self.host = host(words)?,
                "--port" => self.port = words.number(0..=u16::MAX)?,
                "--unix" => self.unix = Some(words.path()?),
                "--parallel" => self.jobs.parallel = words.number(1..=MAX_PARALLEL)?,
                "--queue" => self.jobs.queue = words.number(0..=10_000)?,
                "--idle-trim" => {
                    let seconds = words.number(0..=u64::from(u32::MAX))?;
                    self.jobs.idle_trim = (seconds > 0).then(|| Duration::from_secs(seconds));
                }
                "--api-key" => {
                    let key = words.text()?;
                    if key.trim().is_empty() {
                        return Err(words.bad("an empty key keeps nobody out"));
                    }
                    self.api.keys.add(&key);
                }
                "--api-key-file" => self.api.keys.add_file(&words.path()?)?,
                "--admin-key" => self.api.keys.set_admin(&words.text()?),
                "--cors" => self.api.cors = Some(words.text()?),
                "--alias" => self.alias = Some(words.text()?),
                "--strict-model" => self.api.strict_model = true,
                "--log-prompts" => self.api.log_prompts = true,
                "--config" => self.config = Some(words.path()?),
                flag if self.setup.accept(flag, words)? || self.setup.cache.accept(flag, words)? => {}
                _ => return Err(words.unknown(word)),
            }
        }
        Ok(())
    }

    /// All sources, the weightiest last.
    #[inline(never)]
    fn read(words: &mut Words) -> Result<Serve, Failure> {
        let args = words.rest()?;
        // Once to find the file, and for mistakes on the command line to be told first.
        let mut serve = Serve::new();
        serve.accept(&mut words.instead(args.clone()))?;
        let variable = || std::env::var_os(config_file::variable("--config")).map(PathBuf::from);
        let config = serve.config.take().or_else(variable);
        let mut serve = Serve::new();
        if let Some(path) = config {
            config_file::file(&path, words, &mut |words| serve.accept(words))?;
        }
        config_file::environment(HELP, words, &mut |words| serve.accept(words))?;
        serve.accept(&mut words.instead(args))?;
        Ok(serve)
    }

    fn bind(&self) -> Bind {
        match &self.unix {
            Some(path) => Bind::Unix(path.clone()),
            None => Bind::Tcp(SocketAddr::new(self.host, self.port)),
        }
    }
}

fn host(words: &mut Words) -> Result<IpAddr, Failure> {
    let text = words.text()?;
    let address = if text == "localhost" { "127.0.0.1" } else { text.as_str() };
    address.parse().map_err(|_| words.bad("must be an address of this machine, such as 0.0.0.0 or ::1"))
}

/// Runs the command.
///
/// # Errors
/// Of the command line, the files, the port, the engine.
pub fn command(words: &mut Words) -> Result<(), Failure> {
    let mut serve = Serve::read(words)?;
    let path = words.need(serve.setup.model.clone(), "-m FILE")?;
    serve.setup.cache.check(words)?;
    serve.api.loopback = serve.unix.is_none() && serve.host.is_loopback();
    serve.api.quiet = serve.setup.quiet;
    serve.api.parallel = serve.jobs.parallel;
    // Before anything takes time: whoever stops us now is heard.
    signal::install();
    let mut notify = Notify::from_environment();
    let server = Server::bind(&serve.bind(), Limits::default())?;
    let address = server.address();
    if serve.unix.is_none() && !serve.api.loopback && serve.api.keys.is_open() {
        note(format_args!(
            "WARNING: anybody who reaches {address} can use this server: it asks for no key. Set --api-key, \
             or listen at 127.0.0.1"
        ));
    }
    let api = Arc::new(Api::new(serve.api.clone()));
    let running = server.start(Arc::<Api>::clone(&api))?;
    if let Err(failure) = load(&api, &serve, path.as_path()) {
        running.stop(Duration::ZERO);
        return Err(failure);
    }
    serve.setup.note(format_args!("listening at {address}"));
    notify.say("READY=1");
    let lives = watch(&api, &mut notify);
    notify.say("STOPPING=1");
    stop(&api, &running, &serve.setup);
    lives?;
    if signal::interrupted() { Err(Failure::Interrupted) } else { Ok(()) }
}

/// Waits for the end, and tells systemd meanwhile that the engine does not hang.
fn watch(api: &Api, notify: &mut Notify) -> Result<(), Failure> {
    while !signal::interrupted() && !api.is_shutdown() {
        if let Some(served) = api.served() {
            let Some(beat) = served.scheduler.beat() else {
                return Err(Failure::new("internal error: the engine has ended"));
            };
            if notify.alive(beat) {
                served.scheduler.nudge();
            }
        }
        std::thread::sleep(TICK);
    }
    Ok(())
}

/// Loads the model; the port is open meanwhile.
#[inline(never)]
fn load(api: &Api, serve: &Serve, path: &std::path::Path) -> Result<(), Failure> {
    let model = Model::open_to_compute(path)?;
    let vocabulary = Vocabulary::open(&model)?;
    let template = Template::of(&model)?;
    if let Some(guess) = template.guessed {
        serve.setup.note(format_args!("{guess}; using that of {:?}", template.family));
    }
    let scheduler = Scheduler::start(&model, &serve.setup, serve.jobs)?;
    api.serve(Served::new(&model, &vocabulary, template, scheduler, serve.alias.clone())?);
    Ok(())
}

/// Lets replies end, saves the cache, says goodbye to clients.
#[inline(never)]
fn stop(api: &Api, running: &Running, setup: &Setup) {
    setup.note(format_args!("stopping: replies have {} s to end", DRAIN.as_secs()));
    let clean = api.served().is_none_or(|served| served.scheduler.stop(DRAIN));
    if !clean {
        setup.note(format_args!("not all replies ended, or not all of the cache was saved"));
    }
    running.stop(GOODBYE);
}
