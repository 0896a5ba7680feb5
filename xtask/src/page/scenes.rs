//! The scenes: conversations. Must not know how the browser is steered.

use super::looks;
use super::replies::HOSTILE;
use super::stage::{Scene, Stage};
use crate::sh::{Context, Failure, Outcome};
use core::time::Duration;
use std::fs;
use std::thread::sleep;

/// WebDriver's codes of keys.
pub const ENTER: char = '\u{e007}';
const SHIFT: char = '\u{e008}';
const RELEASE: char = '\u{e000}';
/// See [`ENTER`].
pub const ESCAPE: &str = "\u{e00c}";

/// The text of the last reply.
const REPLY: &str = "document.querySelector('.msg.assistant:last-child .text').textContent";
/// The line under it.
const NOTE: &str = "document.querySelector('.msg.assistant:last-child .note').textContent";
/// All that was said.
const ALL: &str = "[...document.querySelectorAll('.msg .text')].map(e => e.textContent).join('|')";
const COUNT: &str = "Write the numbers from 1 to 2000, one after the other.";

/// All scenes, in the order in which they are played.
pub const SCENES: &[Scene] = &[
    Scene { name: "begin", any_server: true, allowed: &[], play: begin },
    Scene {
        name: "policy",
        any_server: true,
        allowed: &["Content Security Policy", "Trusted"],
        play: policy,
    },
    Scene { name: "stream", any_server: true, allowed: &[], play: stream },
    Scene { name: "stop", any_server: true, allowed: &[], play: stop },
    Scene { name: "reload", any_server: true, allowed: &[], play: reload },
    Scene { name: "again", any_server: true, allowed: &[], play: again },
    Scene { name: "question", any_server: true, allowed: &[], play: question },
    Scene { name: "hostile", any_server: false, allowed: &[], play: hostile },
    Scene { name: "markdown", any_server: false, allowed: &[], play: markdown },
    Scene { name: "thinking", any_server: false, allowed: &[], play: thinking },
    Scene { name: "errors", any_server: false, allowed: &["status of 429"], play: errors },
    Scene { name: "images", any_server: false, allowed: &["status of 400"], play: images },
    Scene { name: "keys", any_server: false, allowed: &["status of 401"], play: looks::keys },
    Scene { name: "settings", any_server: false, allowed: &[], play: looks::settings },
    Scene { name: "status", any_server: true, allowed: &[], play: looks::status },
    Scene { name: "polling", any_server: false, allowed: &[], play: looks::polling },
    Scene { name: "phone", any_server: true, allowed: &[], play: looks::phone },
    Scene { name: "theme", any_server: true, allowed: &[], play: looks::theme },
];

fn begin(stage: &Stage) -> Outcome {
    stage.demand("the title", "document.title === 'kinglet'")?;
    stage.demand("the field has the focus", "document.activeElement === $('input')")?;
    stage.demand(
        "everything that can be pressed or filled has a name",
        "[...document.querySelectorAll('button, a, textarea, input:not([type=file])')].every(e => \
         e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)",
    )?;
    stage.demand("replies are announced", "$('log').getAttribute('role') === 'log'")?;
    stage.shot("empty")
}

/// The policy is there, and holds.
fn policy(stage: &Stage) -> Outcome {
    let script = "return fetch('/').then(a => a.headers.get('content-security-policy'))";
    let policy = stage.browser.run(script)?;
    if policy != stage.policy.as_str() {
        return Err(Failure::new(format!("the page comes with another policy: {policy}")));
    }
    let tries = "window.hit = 0; let caught = '';
        try { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); } catch (e) { caught += e.name; }
        const script = document.createElement('script');
        try { script.textContent = 'window.hit = 1'; } catch (e) { caught += e.name; }
        script.append('window.hit = 2'); document.body.append(script);
        return caught + window.hit;";
    let caught = stage.browser.run(tries)?;
    if caught != "TypeErrorTypeError0" {
        return Err(Failure::new(format!("the policy lets through: {caught}")));
    }
    Ok(())
}

fn stream(stage: &Stage) -> Outcome {
    stage.browser.run(
        "window.lengths = new Set(); new MutationObserver(() => { \
         const text = document.querySelector('.msg.assistant .text'); \
         if (text) lengths.add(text.textContent.length); \
         }).observe($('log'), { subtree: true, childList: true, characterData: true });",
    )?;
    let field = format!("Why is the sky blue?{SHIFT}{ENTER}{RELEASE}Answer in two sentences.");
    stage.browser.type_into("#input", &field)?;
    stage.demand("Shift and Enter begin a line", "$('input').value.includes('?\\nA')")?;
    stage.demand("nothing was sent yet", "!document.querySelector('.msg')")?;
    stage.browser.type_into("#input", &ENTER.to_string())?;
    stage.wait("the stop button", "!$('stop').hidden && $('send').hidden")?;
    stage.demand("the log is busy", "$('log').getAttribute('aria-busy') === 'true'")?;
    stage.demand("the field is empty", "$('input').value === ''")?;
    stage.ended()?;
    stage.demand("the reply grew piece by piece", "lengths.size >= 4")?;
    stage.demand("the log is quiet", "$('log').getAttribute('aria-busy') === 'false'")?;
    stage.demand("no error", "!document.querySelector('.error:not([hidden])')")?;
    let note = stage.text(NOTE)?;
    let parts = ["tokens/s", " tokens", "prompt tokens cached", "first token", "ms"];
    if let Some(part) = parts.iter().find(|part| !note.contains(**part)) {
        return Err(Failure::new(format!("the line lacks '{part}': {note}")));
    }
    if stage.is_fake() {
        stage.demand("letters torn by the network are whole", &format!("{REPLY}.endsWith('most, 散射.')"))?;
        stage.ask("And from the disk?")?;
        stage.demand(
            "where it ended",
            &format!("{NOTE}.includes('differs from token 128 on: \" <i>disk\"')"),
        )?;
        stage.demand(
            "where the prefix came from",
            &format!("/[1-9].*cached \\(disk, 3 ms\\)/.test({NOTE})"),
        )?;
    }
    stage.shot("stream")
}

fn stop(stage: &Stage) -> Outcome {
    let before = stage.fake().map(|fake| fake.state().gone).unwrap_or(0);
    for by_key in [true, false] {
        stage.say(COUNT)?;
        stage.wait("some text", &format!("{REPLY}.length > 12"))?;
        stage.demand("it is being written", "!$('stop').hidden")?;
        if by_key {
            stage.browser.type_into("#input", ESCAPE)?;
        } else {
            stage.browser.click("#stop")?;
        }
        stage.browser.wait("the stop", "$('stop').hidden", Duration::from_secs(3))?;
        let text = stage.text(REPLY)?;
        sleep(Duration::from_millis(400));
        if stage.text(REPLY)? != text {
            return Err(Failure::new("the reply grows after the stop"));
        }
        stage.demand("the line says so", &format!("{NOTE}.includes('stopped')"))?;
        stage.demand("no error", "!document.querySelector('.error:not([hidden])')")?;
    }
    if let Ok(fake) = stage.fake() {
        sleep(Duration::from_millis(300));
        let gone = fake.state().gone - before;
        if gone != 2 {
            return Err(Failure::new(format!("the server saw {gone} of 2 readers go")));
        }
    }
    Ok(())
}

fn reload(stage: &Stage) -> Outcome {
    stage.ask("Say good morning.")?;
    // In the middle of a reply, too.
    stage.say(COUNT)?;
    stage.wait("some text", &format!("{REPLY}.length > 12"))?;
    stage.browser.run("document.dispatchEvent(new Event('visibilitychange'))")?;
    stage.demand(
        "what was written so far is kept when the tab is left",
        "JSON.parse(localStorage['kinglet.chat.' + chat.id]).messages.at(-1).content.length > 12",
    )?;
    stage.browser.reload()?;
    stage.wait("both turns", "document.querySelectorAll('.msg').length === 4")?;
    stage.demand("the half reply is there", &format!("{REPLY}.length > 12"))?;
    let all = stage.text(ALL)?;
    stage.browser.reload()?;
    stage.wait("both turns", "document.querySelectorAll('.msg').length === 4")?;
    if stage.text(ALL)? != all {
        return Err(Failure::new("a reload changes the conversation"));
    }
    stage.browser.click("#new")?;
    stage.demand("a new chat is empty", "!document.querySelector('.msg')")?;
    stage.ask("Say good night.")?;
    stage.demand("both are listed", "$('chats').children.length === 2")?;
    stage.browser.click("#chats li:last-child button")?;
    if stage.text(ALL)? != all {
        return Err(Failure::new("the first conversation is another now"));
    }
    stage.browser.click("#chats li.on button + button")?;
    stage.browser.agree()?;
    stage.wait("one is left", "$('chats').children.length === 1")?;
    stage.demand("the other one is shown", &format!("{ALL}.startsWith('Say good night.')"))
}

/// Regenerate, and the last message edited.
fn again(stage: &Stage) -> Outcome {
    stage.ask("Say a number.")?;
    let first = stage.text(REPLY)?;
    stage.browser.run("document.querySelector('.msg.assistant').dataset.old = 1")?;
    stage
        .browser
        .run("[...document.querySelectorAll('button')].find(b => b.textContent === 'Regenerate').click()")?;
    stage.ended()?;
    stage.demand("it is another message", "!document.querySelector('[data-old]')")?;
    stage.demand("there are two messages", "document.querySelectorAll('.msg').length === 2")?;
    if stage.is_fake() && stage.text(REPLY)? == first {
        return Err(Failure::new("the reply was not made again"));
    }
    let edit = "[...document.querySelectorAll('button')].find(b => b.textContent === 'Edit').click()";
    stage.browser.run(edit)?;
    stage.demand("the message is in the field", "$('input').value === 'Say a number.'")?;
    stage.browser.type_into("#input", ESCAPE)?;
    stage.demand(
        "Escape leaves all as it was",
        &format!("!$('input').value && {ALL}.startsWith('Say a number.|')"),
    )?;
    stage.browser.run(edit)?;
    stage.ask(" A large one.")?;
    stage.demand("it was replaced", &format!("{ALL}.startsWith('Say a number. A large one.|')"))?;
    stage.demand("there are two messages", "document.querySelectorAll('.msg').length === 2")
}

/// What a user pastes stays text, in the conversation and in the list.
fn question(stage: &Stage) -> Outcome {
    let text = "<img src=x onerror=window.hit=8><script>window.hit=7</script> & &amp; Say yes.";
    stage.ask(text)?;
    let shown = stage.text("document.querySelector('.msg.user .text').textContent")?;
    if shown != text {
        return Err(Failure::new(format!("the message reads {shown}")));
    }
    stage.demand("nothing ran", "window.hit === undefined")?;
    stage.demand(
        "no markup came of it",
        "!document.querySelector('#log img, #log script, #chats img, #chats script')",
    )
}

fn hostile(stage: &Stage) -> Outcome {
    stage.ask("hostile")?;
    stage.browser.reload()?;
    stage.wait("the conversation", "document.querySelectorAll('.msg').length === 2")?;
    let bad = "#log script, #log img, #log svg, #log iframe, #log style, #log b";
    stage.demand("no markup came of it", &format!("!document.querySelector('{bad}')"))?;
    stage.demand("nothing ran", "window.hit === undefined")?;
    stage.demand(
        "links lead to the web only",
        "[...document.querySelectorAll('#log a')].every(a => \
         /^https?:/.test(a.href) && a.rel.includes('noopener'))",
    )?;
    stage.demand(
        "no attribute is a handler",
        "![...document.querySelectorAll('#log *')].some(e => \
         [...e.attributes].some(a => /^on/.test(a.name)))",
    )?;
    for line in HOSTILE.split('\n').filter(|l| l.starts_with(['<', '`']) && !l.contains("```")) {
        let shown = stage.text(REPLY)?;
        if !shown.contains(line) {
            return Err(Failure::new(format!("lost: {line} in {shown}")));
        }
    }
    stage.shot("hostile")
}

fn markdown(stage: &Stage) -> Outcome {
    stage.ask("markdown")?;
    let found = |selector: &str, text: &str| {
        let script = format!("document.querySelector('.assistant .text {selector}')?.textContent ?? null");
        let got = stage.text(&script)?;
        let same = got == text;
        same.then_some(()).ok_or(Failure::new(format!("{selector} is {got:?}, not {text:?}")))
    };
    found("h2", "Fibonacci, quickly")?;
    found("h2 em", "quickly")?;
    found("p strong", "n-th")?;
    found("p code", "2")?;
    found("p a[href=\"https://example.com/a_(b)\"]", "the table")?;
    found("p a[href=\"https://example.com/plain\"]", "https://example.com/plain")?;
    found("ol > li:last-child", "Done.")?;
    found("ol > li > ul > li", "add them,")?;
    found("ol ul em strong", "newer")?;
    found(".code span", "rust")?;
    found("th:nth-child(2)", "value")?;
    found("tbody tr:first-child td:nth-child(3) code", "a | b")?;
    found("tbody del", "big")?;
    found("blockquote", "Above n = 93 the sum no longer fits.")?;
    found("hr", "")?;
    found("> p:last-child", "Äöü, 递归, 🐦: done*.")?;
    stage.demand(
        "names and products keep their marks",
        &format!(
            "/snake_case_name or trailing_mark_ or _leading_mark stays .* 2 \\* 3 \\* 4 too/.test({REPLY})"
        ),
    )?;
    stage.demand(
        "code keeps its lines",
        "document.querySelector('.code pre').textContent.split('\\n')[3] === '        (a, b) = (b, a + b);'",
    )?;
    stage.browser.click(".code button")?;
    stage.wait("the copy", "document.querySelector('.code button').textContent === 'Copied'")?;
    stage.browser.run("document.querySelector('#log').scrollTop = 0")?;
    stage.shot("markdown")
}

fn thinking(stage: &Stage) -> Outcome {
    stage.say("think")?;
    stage.wait(
        "thoughts",
        "document.querySelector('details[open]:not([hidden]) div')?.textContent.includes('user')",
    )?;
    stage.ended()?;
    stage.demand("they fold away", "document.querySelector('.assistant details:not([open], [hidden])')")?;
    stage.demand(
        "they are text",
        "document.querySelector('.assistant details div').textContent.includes('<b>thought</b>')",
    )?;
    stage.demand("the reply is apart", &format!("{REPLY} === 'Thought about it.'"))
}

fn errors(stage: &Stage) -> Outcome {
    const ERROR: &str = "document.querySelector('.msg:last-child .error:not([hidden])').textContent";
    stage.ask("busy")?;
    stage.demand("a full server", &format!("/All places are taken.*7 s/.test({ERROR})"))?;
    stage.demand(
        "it can be tried again",
        "document.querySelector('.msg:last-child .foot').textContent === 'Try again'",
    )?;
    stage.ask("break")?;
    stage.demand("a broken stream", &format!("/ended before/.test({ERROR})"))?;
    stage.demand("what came is there", &format!("{REPLY} === 'It breaks off'"))?;
    stage.browser.reload()?;
    stage.wait("the conversation", "document.querySelectorAll('.msg').length === 4")?;
    stage.demand("the error, too", &format!("/ended before/.test({ERROR})"))
}

fn images(stage: &Stage) -> Outcome {
    let file = stage.browser.folder().join("dot.png");
    // One red dot.
    let dot = super::base64::decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC",
    )?;
    fs::write(&file, dot).context("cannot write an image")?;
    stage.browser.type_into("#file", &file.display().to_string())?;
    stage.wait("the image", "document.querySelector('#pics img')?.naturalWidth === 1")?;
    stage.ask("What is this?")?;
    stage.demand("the image is shown", "document.querySelector('.msg.user img').naturalWidth === 1")?;
    stage.demand(
        "the server's error is shown",
        "/cannot see images/.test(document.querySelector('.error:not([hidden])').textContent)",
    )?;
    let state = stage.fake()?.state();
    let sent = state.bodies.last().map(|body| body["messages"][0]["content"].to_string()).unwrap_or_default();
    if !sent.contains("{\"url\":\"data:image/png;base64,iVBOR") || !sent.contains("What is this?") {
        return Err(Failure::new(format!("sent was {sent}")));
    }
    Ok(())
}
