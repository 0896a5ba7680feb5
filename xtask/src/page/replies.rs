//! What the stand-in for a server answers: each text exercises a part of the page. Must not know how it is
//! sent.

use core::time::Duration;

/// An answer to a chat request.
pub enum Answer {
    /// A reply, piece by piece.
    Reply(Reply),
    /// A refusal: status, further header lines, message.
    Refused(u16, &'static str, &'static str),
}

/// A reply and how it comes.
pub struct Reply {
    /// What the model "thinks" first.
    pub reasoning: &'static str,
    /// The text.
    pub text: String,
    /// Between two pieces.
    pub pause: Duration,
    /// Where the beginning of the prompt came from, if any of it was there.
    pub source: &'static str,
    /// The first token that differs from what was there.
    pub diverged: Option<&'static str>,
    /// The connection ends before the reply does.
    pub breaks: bool,
}

/// Markup and addresses that must stay text.
pub const HOSTILE: &str = "<script>window.hit = 1</script> <img src=x onerror=\"window.hit = 2\">\n\n\
    [press](javascript:window.hit=3) [data](data:text/html,<script>window.hit=4</script>)\n\n\
    ![pic](https://example.com/a.png) <b onclick=alert(1)>bold</b> &lt;i&gt;\n\n\
    ```html\"><script>\n</code></pre><script>window.hit = 5</script>\n```\n\n\
    | <svg onload=alert(1)> | b |\n|---|---|\n| <iframe src=//example.com> | `</td>` |\n\n\
    - <a href=\"javascript:window.hit=6\">x</a>\n# <style>*{display:none}</style>";

/// All that the page draws.
pub const MARKDOWN: &str = "## Fibonacci, *quickly*\n\n\
    The **n-th** number needs only `2` variables, see [the table](https://example.com/a_(b)) or \
    https://example.com/plain. A name like \
    snake_case_name or trailing_mark_ or _leading_mark stays as it is, and 2 * 3 * 4 too.\n\n\
    1. Begin with `a = 0`, `b = 1`.\n2. Repeat:\n   - add them,\n   - keep the ***newer*** one.\n3. Done.\n\n\
    ```rust\nfn fibonacci(n: u32) -> u64 {\n    let (mut a, mut b) = (0, 1);\n    for _ in 0..n {\n        \
    (a, b) = (b, a + b);\n    }\n    a\n}\n```\n\n\
    | n | value | note |\n|--:|:--|:-:|\n\
    | 10 | 55 | `a \\| b` |\n| 90 | 2880067194370816120 | ~~big~~ fits |\n\n\
    > Above n = 93 the sum no longer fits.\n\n---\n\nÄöü, 递归, 🐦: done\\*.";

/// Chooses the answer by a word of the question.
pub fn to(question: &str, turn: usize) -> Answer {
    let quick = Duration::from_millis(6);
    let mut reply = Reply {
        reasoning: "",
        text: String::new(),
        pause: quick,
        source: "ram",
        diverged: None,
        breaks: false,
    };
    let says = |word: &str| question.contains(word);
    if says("busy") {
        return Answer::Refused(429, "Retry-After: 7\r\n", "All places are taken.");
    } else if says("hostile") {
        reply.text = HOSTILE.to_owned();
    } else if says("markdown") {
        reply.text = MARKDOWN.to_owned();
    } else if says("Count") || says("Write the numbers") {
        reply.text = (1..2000).map(|n| format!("{n}, ")).collect();
        reply.pause = Duration::from_millis(25);
    } else if says("think") {
        reply.reasoning = "The user wants <b>thought</b>.\nThen an answer.";
        reply.text = "Thought about it.".to_owned();
        reply.pause = Duration::from_millis(30);
    } else if says("break") {
        reply.text = "It breaks off".to_owned();
        reply.breaks = true;
    } else if says("disk") {
        reply.text = "From the disk.".to_owned();
        reply.source = "disk";
        reply.diverged = Some(" <i>disk");
    } else {
        reply.text = format!("Answer {turn}: the sky is blue because air scatters short waves most, 散射.");
        reply.pause = Duration::from_millis(30);
    }
    Answer::Reply(reply)
}
