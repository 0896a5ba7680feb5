//! The scenes around conversations: settings, status, phones, light and dark. Must not know how the browser
//! is steered.

use super::scenes::{ENTER, ESCAPE};
use super::stage::Stage;
use crate::sh::{Failure, Outcome};
use core::time::Duration;
use serde_json::json;
use std::thread::sleep;

/// A server that wants a key.
pub fn keys(stage: &Stage) -> Outcome {
    stage.fake()?.state().key = Some("sesame-1".to_owned());
    let outcome = with_key(stage);
    stage.fake()?.state().key = None;
    outcome
}

fn with_key(stage: &Stage) -> Outcome {
    stage.ask("Hello")?;
    stage.demand(
        "the refusal",
        "/not known.*settings/.test(document.querySelector('.error:not([hidden])').textContent)",
    )?;
    stage.browser.click("#to-status")?;
    stage.wait("the refusal", "/not known/.test($('trouble').textContent) && !$('trouble').hidden")?;
    stage.browser.click("#gear")?;
    stage.browser.type_into("#key", "sesame-1")?;
    stage.browser.click("#done")?;
    stage.wait("the status", "$('trouble').hidden && $('tiles').children.length > 4")?;
    stage.browser.reload()?;
    stage.wait("the status again", "$('trouble').hidden && $('tiles').children.length > 4")?;
    stage.demand(
        "the key is for this tab alone",
        "!JSON.stringify(localStorage).includes('sesame') && \
        JSON.stringify(sessionStorage).includes('sesame')",
    )?;
    stage.browser.click("#to-chat")?;
    stage.ask("Hello again")?;
    stage.demand("a reply", "document.querySelector('.msg:last-child .note')")
}

/// What is set is sent.
pub fn settings(stage: &Stage) -> Outcome {
    stage.browser.click("#gear")?;
    stage.demand("the dialog has the focus", "$('settings').contains(document.activeElement)")?;
    stage.browser.type_into("#system", "Be \"brief\".")?;
    stage.browser.type_into("#temperature", "0.35")?;
    stage.browser.type_into("#max_tokens", "77")?;
    stage.shot("settings")?;
    stage.browser.type_into("#max_tokens", ESCAPE)?;
    stage.demand("Escape closes it", "!$('settings').open")?;
    stage.browser.reload()?;
    stage.ask("Hello")?;
    let body = stage.fake()?.state().bodies.last().cloned().unwrap_or_default();
    let first = json!({"role": "system", "content": "Be \"brief\"."});
    if body["messages"][0] != first || body["temperature"] != 0.35 || body["max_tokens"] != 77 {
        return Err(Failure::new(format!("sent was {body}")));
    }
    if body["stream"] != true
        || body["stream_options"]["include_usage"] != true
        || body["model"] != "fake-model"
    {
        return Err(Failure::new(format!("sent was {body}")));
    }
    Ok(())
}

/// The drawing changes when a prompt is read, and when its prefix is used again.
pub fn status(stage: &Stage) -> Outcome {
    const DRAWING: &str = "$('map').toDataURL()";
    const ROW: &str = "document.querySelector('#last tbody tr')";
    let long = "Count from 1 to 2000, with commas. The numbers are written one after the other, in one line, \
                without any word before, between or behind them, and without a line break.";
    stage.browser.click("#to-status")?;
    stage.wait("the status", "$('tiles').children.length > 4 && $('map').getAttribute('aria-label')")?;
    let idle = stage.text(DRAWING)?;
    stage.shot("status-idle")?;

    stage.browser.click("#to-chat")?;
    stage.say(long)?;
    stage.wait("some text", "document.querySelector('.assistant .text').textContent.length > 60")?;
    stage.browser.click("#to-status")?;
    stage.wait("blocks in use", "/[1-9]\\d* private/.test($('map').getAttribute('aria-label'))")?;
    stage.wait("another drawing", &format!("{DRAWING} !== {}", json!(idle)))?;
    stage.wait("a busy slot", "/written|read/.test($('slots').textContent)")?;
    stage.shot("status-busy")?;
    stage.browser.type_into("body", ESCAPE)?;
    stage.ended()?;
    stage.wait("blocks that stay", "/[1-9]\\d* cached/.test($('map').getAttribute('aria-label'))")?;
    stage.wait("the request in the table", &format!("{ROW}?.children.length === 12"))?;
    let kept = stage.text(DRAWING)?;

    stage.browser.click("#to-chat")?;
    stage.say("Go on.")?;
    stage
        .wait("some text", "document.querySelector('.assistant:last-child .text').textContent.length > 12")?;
    stage.browser.click("#to-status")?;
    if stage.is_fake() {
        stage.wait("shared blocks", "/[1-9]\\d* shared/.test($('map').getAttribute('aria-label'))")?;
    }
    stage.wait("another drawing", &format!("{DRAWING} !== {}", json!(kept)))?;
    stage.shot("status-reuse")?;
    stage.browser.type_into("body", ESCAPE)?;
    stage.ended()?;
    stage.wait("where the prefix came from", &format!("{ROW}.querySelector('.tag.ram, .tag.disk')"))?;
    stage.browser.run("$('last').scrollIntoView()")?;
    stage.shot("status-last")?;
    stage.demand(
        "how much of it",
        &format!("parseInt({ROW}.children[3].textContent.replace(/,/g, '')) > 0"),
    )?;
    stage.browser.reload()?;
    stage.wait("the status after a reload", "!$('status').hidden && $('tiles').children.length > 4")?;
    stage.browser.run("history.back()")?;
    stage.wait("the way back", "!$('chat').hidden")
}

/// The status is asked for once a second, and only while it is looked at.
pub fn polling(stage: &Stage) -> Outcome {
    let polls = |seconds: f64| {
        let fake = stage.fake()?;
        let before = fake.state().polls;
        sleep(Duration::from_secs_f64(seconds));
        Ok::<usize, Failure>(fake.state().polls - before)
    };
    let expect = |what: &str, seconds: f64, least: usize, most: usize| {
        let n = polls(seconds)?;
        let fits = (least..=most).contains(&n);
        fits.then_some(()).ok_or(Failure::new(format!("{what}: asked {n} times in {seconds} s")))
    };
    expect("while chatting", 1.5, 0, 0)?;
    stage.browser.click("#to-status")?;
    expect("while looking", 3.2, 2, 4)?;
    let hide = |hidden: bool| {
        let script = format!(
            "Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }}); \
             document.dispatchEvent(new Event('visibilitychange'))"
        );
        stage.browser.run(&script)
    };
    hide(true)?;
    // One may be under way.
    sleep(Duration::from_millis(100));
    expect("while hidden", 1.5, 0, 0)?;
    hide(false)?;
    expect("when looked at again", 1.3, 1, 2)
}

/// 360 pixels are enough for everything.
pub fn phone(stage: &Stage) -> Outcome {
    let metrics = json!({"width": 360, "height": 640, "deviceScaleFactor": 2, "mobile": true});
    stage.browser.command("Emulation.setDeviceMetricsOverride", metrics)?;
    let outcome = on_phone(stage);
    stage.browser.command("Emulation.clearDeviceMetricsOverride", json!({}))?;
    outcome
}

fn on_phone(stage: &Stage) -> Outcome {
    let fits = |what: &str| {
        stage.demand(what, "innerWidth === 360 && document.documentElement.scrollWidth <= 360")?;
        stage.demand(
            what,
            "[...document.querySelectorAll('body > *, #log, #status, #composer, #composer *, header *, .msg, \
             .card')]\
             .every(e => !e.checkVisibility() || e.getBoundingClientRect().right <= 360.5)",
        )
    };
    stage.browser.reload()?;
    fits("an empty page at 360 px")?;
    let word = "Donaudampfschifffahrtsgesellschaft".repeat(4);
    stage.ask(&format!("markdown {word} Say ok."))?;
    fits("a conversation at 360 px")?;
    stage.demand("the log does not scroll sideways", "$('log').scrollWidth <= $('log').clientWidth")?;
    stage.shot("phone-chat")?;
    stage.browser.click("#menu")?;
    stage.demand("the drawer is open", "$('side').checkVisibility() && $('menu').ariaExpanded === 'true'")?;
    fits("the drawer at 360 px")?;
    stage.shot("phone-drawer")?;
    stage.browser.type_into("#new", ESCAPE)?;
    stage.demand(
        "the drawer is closed",
        "!$('side').checkVisibility() && document.activeElement === $('menu')",
    )?;
    stage.browser.click("#gear")?;
    fits("the settings at 360 px")?;
    stage.shot("phone-settings")?;
    stage.browser.type_into("#done", &ENTER.to_string())?;
    stage.browser.click("#to-status")?;
    stage.wait("the status", "$('tiles').children.length > 4 && document.querySelector('#last tbody tr')")?;
    fits("the status at 360 px")?;
    stage.demand(
        "the status does not scroll sideways",
        "$('status').scrollWidth <= $('status').clientWidth",
    )?;
    stage.shot("phone-status")
}

/// The system's choice is followed until another one is made.
pub fn theme(stage: &Stage) -> Outcome {
    let outcome = in_the_dark(stage);
    stage.browser.command("Emulation.setEmulatedMedia", json!({"features": []}))?;
    outcome
}

fn in_the_dark(stage: &Stage) -> Outcome {
    const BRIGHTNESS: &str = "parseInt(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])";
    let system = |scheme: &str| {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        stage.browser.command("Emulation.setEmulatedMedia", features)
    };
    let dark = format!("{BRIGHTNESS} < 60");
    let light = format!("{BRIGHTNESS} > 200");
    system("light")?;
    stage.wait("light", &light)?;
    system("dark")?;
    stage.wait("dark as the system is", &dark)?;
    stage.ask("markdown, please, in the dark")?;
    stage.shot("dark-chat")?;
    stage.browser.click("#to-status")?;
    stage.wait("the status", "$('tiles').children.length > 4")?;
    stage.shot("dark-status")?;
    stage.browser.click("#theme")?;
    stage.demand("light by the button", &light)?;
    stage.browser.reload()?;
    stage.wait("light after a reload", &light)?;
    stage.browser.click("#theme")?;
    stage.demand("dark by the button", &dark)?;
    system("light")?;
    stage.wait("the system is followed again", &light)
}
