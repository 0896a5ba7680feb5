//! The `Date` header (RFC 9110, 5.6.7). Must not know what time it is.

/// `Sun, 06 Nov 1994 08:49:37 GMT` of seconds since 1970.
pub fn date(seconds: u64, out: &mut String) {
    const DAYS: [&str; 7] = ["Thu, ", "Fri, ", "Sat, ", "Sun, ", "Mon, ", "Tue, ", "Wed, "];
    const MONTHS: [&str; 12] = [
        " Jan ", " Feb ", " Mar ", " Apr ", " May ", " Jun ", " Jul ", " Aug ", " Sep ", " Oct ", " Nov ",
        " Dec ",
    ];
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March, in eras of 400, so that the day that some years lack is a year's last
    // (Howard Hinnant, "chrono-compatible low-level date algorithms").
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = (month + 2) % 12;
    let year = era * 400 + year + u64::from(month < 2);

    out.push_str(DAYS[(days % 7) as usize]);
    digits(day, 2, out);
    out.push_str(MONTHS[month as usize]);
    digits(year, 4, out);
    for (part, before) in [(second / 3600, ' '), (second / 60 % 60, ':'), (second % 60, ':')] {
        out.push(before);
        digits(part, 2, out);
    }
    out.push_str(" GMT");
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
}
