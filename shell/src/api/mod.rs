//! The APIs over HTTP: OpenAI's, Anthropic's, llama.cpp's smaller ones, and our own under `/admin`. Which
//! path is whose, who may ask, what goes into the log. Must not know sockets, or how replies are computed.

pub mod anthropic_ask;
pub mod ask;
pub mod auth;
pub mod body;
pub mod chat_ask;
pub mod chat_reply;
pub mod client;
pub mod error;
pub mod fields;
pub mod generate;
pub mod json;
pub mod log;
pub mod message_reply;
pub mod outcome;
pub mod picker;
pub mod records;
pub mod reply;
pub mod run;
pub mod served;
pub mod small;
pub mod status;
pub mod talk;
pub mod text_reply;

use crate::http::{Reply, Request, Service};
use crate::page;
use auth::{Caller, Keys, own_pages_only};
use body::parse;
use client::{Answer, Client};
use core::sync::atomic::{AtomicBool, Ordering};
use error::{ApiError, GONE, Manner};
use generate::Kind;
use log::{Log, Told};
use records::Records;
use serde_json::Value;
use served::Served;
use std::sync::OnceLock;
use std::time::Instant;

/// What whoever runs the server has decided.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Who may ask.
    pub keys: Keys,
    /// A page of another site that may ask; `*`: all.
    pub cors: Option<String>,
    /// Whether nobody but this machine can reach us by TCP.
    pub loopback: bool,
    /// Whether a request must name the model.
    pub strict_model: bool,
    /// Whether prompts go into the log.
    pub log_prompts: bool,
    /// Whether there is no log.
    pub quiet: bool,
    /// Most replies at a time.
    pub parallel: usize,
}

/// The APIs, from the moment that the port is open.
pub struct Api {
    options: Options,
    served: OnceLock<Served>,
    records: Records,
    log: Log,
    start: Instant,
    shutdown: AtomicBool,
}

impl Api {
    /// Without a model: all but its health is "not yet".
    pub fn new(options: Options) -> Api {
        Api {
            options,
            served: OnceLock::new(),
            records: Records::default(),
            log: Log::default(),
            start: Instant::now(),
            shutdown: AtomicBool::new(false),
        }
    }

    /// From now on it answers with this model.
    pub fn serve(&self, served: Served) {
        // Only the first one counts, and there is but one.
        let _ = self.served.set(served);
    }

    /// The model, once it is loaded.
    pub fn served(&self) -> Option<&Served> {
        self.served.get()
    }

    /// Whether `/admin/api/shutdown` was called.
    pub fn is_shutdown(&self) -> bool {
        self.shutdown.load(Ordering::Relaxed)
    }

    fn ready(&self) -> Result<&Served, ApiError> {
        self.served
            .get()
            .ok_or_else(|| ApiError::new(503, "the model is being loaded").coded("loading").later(1))
    }

    /// Answers a request; None if the answer is given already.
    fn route(
        &self,
        request: &Request,
        client: &mut Client<'_>,
        told: &mut Told,
    ) -> Result<Option<Answer>, ApiError> {
        if request.method == "OPTIONS" {
            return Ok(Some(self.preflight()));
        }
        let path = request.path.as_str();
        let is_admin = path.starts_with("/admin");
        // The page asks for the key itself; health is for whoever watches.
        let is_public = matches!(path, "/" | "/health" | "/v1/health");
        let header = |name| request.headers.get(name);
        let caller = Caller {
            authorization: header("authorization"),
            key: header("x-api-key"),
            origin: header("origin"),
            host: header("host"),
        };
        if self.options.keys.is_open() {
            own_pages_only(&caller, self.options.cors.as_deref(), self.options.loopback)?;
        }
        let key = if is_public { None } else { self.options.keys.admit(&caller, is_admin)? };
        let method = if request.method == "HEAD" { "GET" } else { request.method.as_str() };
        let body = || parse(&request.body);
        let kind = match (method, path) {
            ("GET", "/") => return Ok(Some(self.page(request))),
            ("GET", "/health" | "/v1/health") => return self.health().map(|body| Some(Answer::json(body))),
            ("GET", "/metrics") => {
                let text = status::metrics(self.served.get(), &self.records, self.start.elapsed());
                return Ok(Some(Answer::text("text/plain; version=0.0.4; charset=utf-8", text)));
            }
            ("GET", "/admin/api/log") => {
                return Ok(Some(Answer::text("text/plain; charset=utf-8", self.log.text())));
            }
            ("POST", "/admin/api/shutdown") => {
                self.shutdown.store(true, Ordering::Relaxed);
                return Ok(Some(Answer {
                    status: 202,
                    ..Answer::json(String::from(r#"{"status":"stopping"}"#))
                }));
            }
            ("POST", "/v1/chat/completions" | "/chat/completions") => Kind::Chat,
            ("POST", "/v1/completions" | "/completions") => Kind::Text,
            ("POST", "/v1/messages") => Kind::Messages,
            _ => {
                let body = self.small(method, path, &body)?;
                return Ok(Some(Answer::json(body)));
            }
        };
        self.generate(kind, &body, key, client, told)
    }

    /// Endpoints that need no engine.
    fn small(
        &self,
        method: &str,
        path: &str,
        body: &dyn Fn() -> Result<Value, ApiError>,
    ) -> Result<String, ApiError> {
        let known = match path {
            "/v1/models" | "/models" | "/props" | "/admin/api/status" | "/admin/api/log" => "GET",
            path if path.starts_with("/v1/models/") => "GET",
            "/tokenize" | "/detokenize" | "/apply-template" | "/v1/messages/count_tokens" => "POST",
            "/admin/api/kv/clear" | "/admin/api/shutdown" => "POST",
            "/v1/chat/completions" | "/v1/completions" | "/v1/messages" => "POST",
            "/" | "/health" | "/metrics" => "GET",
            _ => return Err(ApiError::new(404, "there is nothing at this path")),
        };
        if method != known {
            return Err(ApiError::new(405, ["this path takes ", known].concat()));
        }
        let served = self.ready()?;
        match path {
            "/v1/models" | "/models" => Ok(small::models(served)),
            "/props" => Ok(small::props(served, self.options.parallel)),
            "/admin/api/status" => Ok(status::json(served, &self.records, self.start.elapsed())),
            "/tokenize" => small::tokenize(served, &body()?),
            "/detokenize" => small::detokenize(served, &body()?),
            "/apply-template" => small::apply_template(served, &body()?),
            "/v1/messages/count_tokens" => small::count_tokens(served, &body()?),
            "/admin/api/kv/clear" => {
                served.scheduler.clear();
                Ok(String::from(r#"{"status":"ok"}"#))
            }
            path => small::model(served, path.trim_start_matches("/v1/models/")),
        }
    }

    fn health(&self) -> Result<String, ApiError> {
        let served = self.ready()?;
        if served.scheduler.status().stopping {
            return Err(ApiError::new(503, "the server is stopping").coded("stopping"));
        }
        Ok(String::from(r#"{"status":"ok"}"#))
    }

    /// The page for people.
    fn page(&self, request: &Request) -> Answer {
        let (bytes, etag) = page::html();
        let known = request.headers.get("if-none-match");
        let mut answer = Answer::text("text/html; charset=utf-8", String::new());
        if known.is_some_and(|known| known.split(',').any(|one| one.trim().trim_start_matches("W/") == etag))
        {
            answer.status = 304;
        } else {
            answer.body = bytes.to_vec();
            // All browsers take it, and there is no other copy.
            answer.headers.push(("Content-Encoding", String::from("gzip")));
        }
        let fixed = [
            ("ETag", etag),
            // A browser asks each time, so that an update of the program is seen at once.
            ("Cache-Control", "no-cache"),
            ("Content-Security-Policy", page::csp()),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
        ];
        answer.headers.extend(fixed.map(|(name, value)| (name, String::from(value))));
        answer
    }

    /// What browsers ask before they let a page of another site ask.
    fn preflight(&self) -> Answer {
        let mut answer = Answer { status: 204, ..Answer::text("", String::new()) };
        answer.headers.push(("Allow", String::from("GET, HEAD, POST, OPTIONS")));
        if self.options.cors.is_some() {
            answer.headers.push(("Access-Control-Allow-Methods", String::from("GET, POST")));
            answer.headers.push((
                "Access-Control-Allow-Headers",
                String::from("authorization, content-type, x-api-key, anthropic-version"),
            ));
            answer.headers.push(("Access-Control-Max-Age", String::from("3600")));
        }
        answer
    }
}

impl Service for Api {
    fn answer(&self, request: &Request, reply: Reply<'_>) {
        let manner =
            if request.path.starts_with("/v1/messages") { Manner::Anthropic } else { Manner::OpenAi };
        let mut client = Client::new(reply, self.options.cors.as_deref());
        let mut told = Told::default();
        match self.route(request, &mut client, &mut told) {
            Ok(Some(answer)) => client.send(&answer),
            Ok(None) => {}
            Err(error) => client.fail(&error, manner),
        }
        let status = client.status;
        if let Some(record) = &mut told.record {
            record.status = status;
            if status == GONE {
                record.finish = "cancelled";
            }
        }
        self.log.add(request, status, &told, self.options.quiet);
        self.records.add(status, told.record);
    }

    fn fault(&self, status: u16, what: &str) -> (&'static str, Vec<u8>) {
        self.records.add(status, None);
        ("application/json", ApiError::new(status, what).body(Manner::OpenAi).into_bytes())
    }
}

#[cfg(test)]
mod tests;
