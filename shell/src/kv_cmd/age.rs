//! Spans of time as people write them. Must not know what is that old.

use crate::store::medium::Time;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Seconds from `time` to `now` (seconds since 1970); 0 if it lies ahead, as after a clock was set.
pub fn of(time: Time, now: i64) -> u64 {
    u64::try_from(now.saturating_sub(time.seconds)).unwrap_or(0)
}

/// A span in seconds for people: rounded down, two figures or more.
pub fn shown(seconds: u64) -> String {
    let (unit, name) = match seconds {
        0..120 => (1, " s"),
        120..7200 => (MINUTE, " min"),
        7200..172_800 => (HOUR, " h"),
        _ => (DAY, " d"),
    };
    let mut text = (seconds / unit).to_string();
    text.push_str(name);
    text
}

/// The seconds of `90s`, `30min`, `12h`, `7d`, `4w`; `None` for anything else.
pub fn parse(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = match &text[digits..] {
        "s" => 1,
        "m" | "min" => MINUTE,
        "h" => HOUR,
        "d" => DAY,
        "w" => 7 * DAY,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read() {
        assert_eq!(parse("90s"), Some(90));
        assert_eq!(parse("2m"), Some(120));
        assert_eq!(parse("2min"), Some(120));
        assert_eq!(parse("1h"), Some(3600));
        assert_eq!(parse("7d"), Some(604_800));
        assert_eq!(parse("0w"), Some(0));
        for wrong in ["", "7", "d", "-7d", "7 d", "7days", "1.5h", "99999999999999999d", "\u{663}d"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn spans_are_shown() {
        assert_eq!(shown(0), "0 s");
        assert_eq!(shown(119), "119 s");
        assert_eq!(shown(120), "2 min");
        assert_eq!(shown(7199), "119 min");
        assert_eq!(shown(48 * HOUR - 1), "47 h");
        assert_eq!(shown(1000 * DAY), "1000 d");
        assert_eq!(of(Time { seconds: 90, nanos: 3 }, 100), 10);
        assert_eq!(of(Time { seconds: 101, nanos: 3 }, 100), 0);
        assert_eq!(of(Time { seconds: i64::MIN, nanos: 3 }, i64::MAX), i64::MAX as u64);
    }
}
