//! Times as text: the `Date` header (RFC 9110, 5.6.7), and those in JSON. Must not know what time it is.

/// `Sun, 06 Nov 1994 08:49:37 GMT` of seconds since 1970.
pub fn date(seconds: u64, out: &mut String) {
    const DAYS: [&str; 7] = ["Thu, ", "Fri, ", "Sat, ", "Sun, ", "Mon, ", "Tue, ", "Wed, "];
    const MONTHS: [&str; 12] = [
        " Jan ", " Feb ", " Mar ", " Apr ", " May ", " Jun ", " Jul ", " Aug ", " Sep ", " Oct ", " Nov ",
        " Dec ",
    ];
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = calendar(days);
    out.push_str(DAYS[(days % 7) as usize]);
    digits(day, 2, out);
    out.push_str(MONTHS[month as usize]);
    digits(year, 4, out);
    clock(second, ' ', out);
    out.push_str(" GMT");
}

/// `1994-11-06T08:49:37Z` (RFC 3339) of seconds since 1970, as JSON has it.
pub fn timestamp(seconds: u64, out: &mut String) {
    let (year, month, day) = calendar(seconds / 86_400);
    digits(year, 4, out);
    for part in [month + 1, day] {
        out.push('-');
        digits(part, 2, out);
    }
    clock(seconds % 86_400, 'T', out);
    out.push('Z');
}

/// Year, month from 0 on and day from 1 on of days since 1970.
fn calendar(days: u64) -> (u64, u64, u64) {
    // Years that begin in March, in eras of 400, so that the day that some years lack is a year's last
    // (Howard Hinnant, "chrono-compatible low-level date algorithms").
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = (month + 2) % 12;
    (era * 400 + year + u64::from(month < 2), month, day)
}

/// Hours, minutes and seconds of a day's second.
fn clock(second: u64, before: char, out: &mut String) {
    for (part, before) in [(second / 3600, before), (second / 60 % 60, ':'), (second % 60, ':')] {
        out.push(before);
        digits(part, 2, out);
    }
}

/// The last `count` decimal digits of a number.
fn digits(number: u64, count: u32, out: &mut String) {
    for place in (0..count).rev() {
        out.push(char::from(b'0' + (number / 10u64.pow(place) % 10) as u8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seconds: u64) -> String {
        let mut out = String::new();
        date(seconds, &mut out);
        out
    }

    /// Against `date -u`.
    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(of(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(of(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(of(951_782_399), "Mon, 28 Feb 2000 23:59:59 GMT");
        assert_eq!(of(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(of(1_709_251_199), "Thu, 29 Feb 2024 23:59:59 GMT");
        assert_eq!(of(1_709_251_200), "Fri, 01 Mar 2024 00:00:00 GMT");
        assert_eq!(of(4_107_542_399), "Sun, 28 Feb 2100 23:59:59 GMT");
        assert_eq!(of(4_107_542_400), "Mon, 01 Mar 2100 00:00:00 GMT");
    }

    #[test]
    fn timestamps_are_the_same_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (784_111_777, "1994-11-06T08:49:37Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
        ] {
            let mut out = String::new();
            timestamp(seconds, &mut out);
            assert_eq!(out, text);
        }
    }
}
