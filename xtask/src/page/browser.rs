//! Chromium without a window, steered through its driver by WebDriver, the standard for that.
//! Must not know the page.

use super::{base64, wire};
use crate::sh::{self, Context, Failure, Outcome};
use core::time::Duration;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const DRIVER: &str = "chromedriver";

/// The key under which WebDriver speaks of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Whether there is a browser.
pub fn has_browser() -> bool {
    BROWSERS.iter().any(|name| sh::output(name, &["--version"]).is_some())
}

/// Whether there is its driver.
pub fn has_driver() -> bool {
    sh::output(DRIVER, &["--version"]).is_some()
}

/// A browser with one tab. Ends, with all it wrote, when it is dropped.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    folder: PathBuf,
}

impl Browser {
    /// Starts driver and browser, with a profile of their own.
    ///
    /// # Errors
    /// Either is missing or does not start.
    pub fn start() -> Outcome<Browser> {
        let folder = std::env::temp_dir().join(format!("kinglet-page-test-{}", std::process::id()));
        fs::create_dir_all(&folder).context(format_args!("cannot make {}", folder.display()))?;
        let mut command = Command::new(DRIVER);
        // The home, too, is a new one: what the browser leaves there goes with the folder.
        command
            .arg("--port=0")
            .env("HOME", &folder)
            .env("XDG_CONFIG_HOME", &folder)
            .env("XDG_CACHE_HOME", &folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver =
            command.spawn().context("cannot start chromedriver; `cargo xtask setup` installs it")?;
        let stdout = driver.stdout.take();
        let mut browser = Browser { driver, port: 0, session: String::new(), folder };
        let mut lines = BufReader::new(stdout.ok_or(Failure::new("chromedriver says nothing"))?).lines();
        let said = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        browser.port = said.ok_or(Failure::new("chromedriver does not say its port"))?;
        // Nobody reads on: a full pipe must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        browser.open()?;
        Ok(browser)
    }

    fn open(&mut self) -> Outcome {
        let mut args = vec![
            "--headless".to_owned(),
            format!("--user-data-dir={}", self.folder.join("profile").display()),
            "--window-size=1280,860".to_owned(),
        ];
        let plain = [
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-default-apps",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-sync",
            "--no-first-run",
            "--no-proxy-server",
            "--password-store=basic",
            "--lang=en",
        ];
        args.extend(plain.map(str::to_owned));
        // Chromium refuses to sandbox for root. All it loads here is ours.
        if sh::output("id", &["-u"]).as_deref() == Some("0") {
            args.push("--no-sandbox".to_owned());
        }
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": args},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let answer = self.ask("POST", "/session", &wanted)?;
        let id = answer["sessionId"].as_str().ok_or(Failure::new("the browser gives no session"))?;
        self.session = format!("/session/{id}");
        Ok(())
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Outcome<Value> {
        let text = if method == "POST" { body.to_string() } else { String::new() };
        let (status, bytes) = wire::ask(self.port, method, path, &text)?;
        let mut answer: Value = serde_json::from_slice(&bytes).context("the driver sends no JSON")?;
        let value = answer["value"].take();
        if status != 200 {
            let message = value["message"].as_str().unwrap_or("no reason").lines().next().unwrap_or_default();
            return Err(Failure::new(format!("browser: {message}")));
        }
        Ok(value)
    }

    fn post(&self, what: &str, body: &Value) -> Outcome<Value> {
        self.ask("POST", &format!("{}/{what}", self.session), body)
    }

    /// Loads an address and waits for the page.
    pub fn go(&self, url: &str) -> Outcome {
        self.post("url", &json!({"url": url})).map(drop)
    }

    /// Loads the page again.
    pub fn reload(&self) -> Outcome {
        self.post("refresh", &json!({})).map(drop)
    }

    /// Runs a function's body in the page; gives what it returns.
    pub fn run(&self, script: &str) -> Outcome<Value> {
        self.post("execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until an expression is true.
    ///
    /// # Errors
    /// It is not within `patience`; the message is `what`.
    pub fn wait(&self, what: &str, expression: &str, patience: Duration) -> Outcome {
        let begin = Instant::now();
        while self.run(&format!("return !!({expression})"))? != Value::Bool(true) {
            if begin.elapsed() > patience {
                return Err(Failure::new(format!("waited {} s in vain: {what}", patience.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(40));
        }
        Ok(())
    }

    fn element(&self, selector: &str) -> Outcome<String> {
        let found = self.post("element", &json!({"using": "css selector", "value": selector}))?;
        let id = found[ELEMENT].as_str().ok_or(Failure::new(format!("no element {selector}")))?;
        Ok(format!("element/{id}"))
    }

    /// Clicks, as a hand would: what is covered or hidden cannot be clicked.
    pub fn click(&self, selector: &str) -> Outcome {
        self.post(&format!("{}/click", self.element(selector)?), &json!({})).map(drop)
    }

    /// Types into an element.
    pub fn type_into(&self, selector: &str, text: &str) -> Outcome {
        self.post(&format!("{}/value", self.element(selector)?), &json!({"text": text})).map(drop)
    }

    /// Agrees to the question that the page asks.
    pub fn agree(&self) -> Outcome {
        self.post("alert/accept", &json!({})).map(drop)
    }

    /// A command of Chromium's own protocol.
    pub fn command(&self, name: &str, params: Value) -> Outcome<Value> {
        self.post("goog/cdp/execute", &json!({"cmd": name, "params": params}))
    }

    /// What the console got since the last call: warnings and errors.
    pub fn complaints(&self) -> Outcome<Vec<String>> {
        let entries = self.post("se/log", &json!({"type": "browser"}))?;
        let bad = |entry: &&Value| matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING"));
        let text = |entry: &Value| entry["message"].as_str().unwrap_or_default().to_owned();
        Ok(entries.as_array().into_iter().flatten().filter(bad).map(text).collect())
    }

    /// Writes what is on the screen as a PNG.
    pub fn picture(&self, file: &Path) -> Outcome {
        let image = self.ask("GET", &format!("{}/screenshot", self.session), &Value::Null)?;
        let bytes = base64::decode(image.as_str().unwrap_or_default())?;
        fs::write(file, bytes).context(format_args!("cannot write {}", file.display()))
    }

    /// A folder that ends with the browser.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser; without its driver it would stay.
        if !self.session.is_empty()
            && let Err(failure) = self.ask("DELETE", &self.session, &Value::Null)
        {
            eprintln!("the browser does not end: {failure}");
        }
        if let Err(error) = self.driver.kill().and_then(|()| self.driver.wait()) {
            eprintln!("the driver does not end: {error}");
        }
        // The browser's last process may still be writing.
        for _ in 0..20 {
            if fs::remove_dir_all(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        eprintln!("cannot remove {}", self.folder.display());
    }
}
